"""Recipes: every choice survives a file, and broken files are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onnxq.calibration.recipe import Recipe
from onnxq.calibration.recorded_grids import Look, RecordedGrid
from onnxq.errors import OnnxqError
from onnxq.quant.settings import Settings

FULL = Recipe(
    "tensorrt",
    None,
    "percentile:99.99",
    {"x": 0.55, "y": 1.0},
    False,
    Settings.of([["head", "float"], ["re:layer1.*", {"weight_bits": 4}]]),
)


def test_a_recipe_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(FULL.dumps(), encoding="utf-8")
    assert Recipe.load(path) == FULL
    assert Recipe.loads(Recipe("vitis").dumps()) == Recipe("vitis")
    rounded = Recipe("vitis", rounding="gptq")
    assert Recipe.loads(rounded.dumps()) == rounded


def test_the_record_of_grids_has_a_line_for_each() -> None:
    look = Look(4, (-1.0, 1.0, -0.5, 0.5), (0.0, 0.25))
    grid = RecordedGrid("x", "mse", "0..255", look, (0.1, 0.25), (128, 0))
    full = replace(FULL, grids=(grid, replace(grid, tensor="y", zero_point=())))
    assert Recipe.loads(full.dumps()) == full
    assert json.loads(full.dumps()) == full.to_json()
    assert sum("extremes" in line for line in full.dumps().splitlines()) == 2


def test_recipes_without_a_record_are_read() -> None:
    choices = FULL.to_json()
    del choices["grids"]
    assert Recipe.loads(json.dumps(choices)) == FULL


def test_float_layers_come_first() -> None:
    rules = FULL.with_float(["a", "b"]).settings.to_json()
    assert rules[:2] == [["a", "float"], ["b", "float"]]
    assert rules[2:] == FULL.settings.to_json()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version"),
        ({"method": "best"}, "no calibration method 'best'"),
        ({"smooth": {"x": "much"}}, "'smooth' must map"),
        ({"bias_correction": 1}, "'bias_correction' must be"),
        ({"rounding": "gpt"}, "no rounding 'gpt'"),
        ({"rounding": 4}, "no rounding '4'"),
        ({"settings": {"head": "float"}}, "list of rules"),
        ({"more": 1}, "more"),
        ({"grids": {}}, "'grids' must be a list"),
        ({"grids": [{}]}, r"grids\[0\]: key 'tensor' is missing"),
    ],
)
def test_broken_recipes_are_refused(change: dict[str, object], words: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(FULL.to_json() | change), encoding="utf-8")
    with pytest.raises(OnnxqError, match=words) as caught:
        Recipe.load(path)
    assert "r.json" in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OnnxqError, match="not a text file"):
        Recipe.load(path)
