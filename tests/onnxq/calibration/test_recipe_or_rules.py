"""A recipe or rules, in every form a user may give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxq.calibration.recipe import Recipe, recipe_or_rules
from onnxq.errors import LoadError, OnnxqError, OptionError
from onnxq.quant.settings import Settings

RULES = Settings.of([["head", "float"]])
RECIPE = Recipe("tensorrt", method="mse", settings=RULES)


def test_forms(tmp_path: Path) -> None:
    assert recipe_or_rules(RECIPE) is RECIPE
    assert recipe_or_rules(RULES) is RULES
    assert recipe_or_rules([["head", "float"]]) == RULES
    assert recipe_or_rules(None) == Settings()
    recipe, rules = tmp_path / "recipe.json", tmp_path / "rules.json"
    recipe.write_text(RECIPE.dumps())
    rules.write_text(RULES.dumps())
    assert recipe_or_rules(recipe) == recipe_or_rules(str(recipe)) == RECIPE
    assert recipe_or_rules(rules) == RULES


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("[", LoadError, "not a recipe or a list of rules: line 1"),
        ("{}", LoadError, "key 'onnxq' is missing"),
        ('[["head", "flaot"]]', OptionError, "'flaot' is not a setting"),
    ],
)
def test_errors_name_the_file(
    text: str, kind: type[OnnxqError], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "given.json"
    path.write_text(text)
    with pytest.raises(kind, match=words) as caught:
        recipe_or_rules(path)
    assert str(path) in caught.value.what
    assert caught.value.fix


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OnnxqError, match=r"no\.json"):
        recipe_or_rules(tmp_path / "no.json")
