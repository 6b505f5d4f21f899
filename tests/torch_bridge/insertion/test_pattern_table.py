"""The table of patterns: how it is changed, by programs and by packages."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.discovery import PATTERNS_GROUP  # noqa: E402
from onnxq.errors import OptionError  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.insertion.pattern import Link, Pattern  # noqa: E402
from torch_bridge.insertion.pattern_table import PatternTable  # noqa: E402
from torch_bridge.insertion.patterns import RELU  # noqa: E402

LINEAR = Link("Linear", (nn.Linear,))
PLAIN = Pattern("Linear", (LINEAR,), qat=qnn.QatLinear)
CHAIN = Pattern("Linear+ReLU", (LINEAR, RELU), qat=qnn.FusedQatLinear, fused=qnn.FusedLinear)
TANH = Link("Tanh", (nn.Tanh,), (torch.tanh,), ("tanh",))
FORMS = {"qat": qnn.FusedQatLinear, "fused": qnn.FusedLinear}
OWN = Pattern("Linear+Tanh", (LINEAR, TANH), **FORMS)
X = (torch.randn(2, 4),)

pytestmark = pytest.mark.usefixtures("forgotten")


def test_names_are_given_once() -> None:
    table = PatternTable()
    table.add(PLAIN)
    table.add(PLAIN)
    other = Pattern("Linear", (LINEAR,), qat=qnn.QatLinear, axis=lambda layer: None)
    with pytest.raises(OptionError, match="a pattern 'Linear' exists already"):
        table.add(other)
    table.add(other, replace=True)
    assert table.of() == (other,)


def test_a_backend_overrides_adds_and_removes() -> None:
    table = PatternTable()
    table.add(PLAIN)
    table.add(CHAIN)
    own = Pattern("Linear", (LINEAR,), qat=qnn.QatLinear, axis=lambda layer: None)
    table.add(own, backend="chip")
    table.remove("Linear+ReLU", backend="chip")
    assert table.of("chip") == (own,)
    assert table.of() == table.of("another") == (CHAIN, PLAIN)
    extra = Pattern("Conv1d", (Link("Conv1d", (nn.Conv1d,)),), qat=qnn.QatConv1d)
    table.add(extra, backend="chip")
    assert extra in table.of("chip")
    table.remove("Conv1d", backend="chip")
    assert table.of("chip") == (own,)
    table.remove("Linear+ReLU")
    assert table.of() == (PLAIN,)


def test_a_pattern_names_its_backends() -> None:
    table = PatternTable()
    table.add(PLAIN)
    own = Pattern("Linear", (LINEAR,), qat=qnn.QatLinear, backends=("chip", "other"))
    table.add(own)
    assert table.of("chip") == table.of("other") == (own,)
    assert table.of() == (PLAIN,)
    assert table.named("Linear") in (PLAIN, own)


def test_a_table_with_more_leaves_the_first_as_it_is() -> None:
    table = PatternTable()
    table.add(PLAIN)
    other = Pattern("Linear", (LINEAR,), qat=qnn.QatLinear, axis=lambda layer: None)
    assert table.having([other, OWN]).of() == (OWN, other)
    assert table.of() == (PLAIN,)


# -- in prepare ---------------------------------------------------------------------------------


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))


def fused(q: nn.Module) -> bool:
    return getattr(q.get_submodule("0"), "activation", None) is not None


def test_patterns_for_one_model_and_for_all() -> None:
    assert fused(tb.prepare(net(), "tensorrt", X, patterns=[OWN]))
    assert not fused(tb.prepare(net(), "tensorrt", X))
    assert tb.register_pattern(OWN) is OWN
    assert fused(tb.prepare(net(), "tensorrt", X))
    tb.PATTERNS.remove("Linear+Tanh", backend="openvino")
    assert not fused(tb.prepare(net(), "openvino", X))
    q = tb.prepare(net(), "tensorrt", X, patterns="Linear+Tanh")
    assert fused(q)
    assert "Linear+Tanh" in str(tb.PATTERNS)


def test_a_pattern_for_one_model_that_replaces_another_is_told() -> None:
    own = Pattern("Linear", (LINEAR,), qat=qnn.QatLinear, axis=lambda layer: None)
    notes = tb.prepare(net(), "tensorrt", X, patterns=[own]).onnxq_report.notes
    (told,) = [note for note in notes if "takes the place" in note]
    assert "'Linear', given by patterns=" in told
    assert "Linear: trained as QatLinear" in told
    tb.register_pattern(OWN)
    notes = tb.prepare(net(), "tensorrt", X, patterns=[OWN]).onnxq_report.notes
    assert not any("takes the place" in note for note in notes)


def test_a_recipe_names_the_patterns_of_its_model() -> None:
    q = tb.prepare(net(), "tensorrt", X, patterns=[OWN])
    recipe = tb.recipe(q.state_dict())
    assert recipe.patterns == ("Linear+Tanh",)
    with pytest.raises(OptionError, match=r"there is no pattern 'Linear.Tanh'") as caught:
        tb.prepare(net(), example_inputs=X, settings=recipe)
    assert "patterns=[...]" in caught.value.fix
    again = tb.prepare(net(), example_inputs=X, settings=recipe, patterns=[OWN])
    assert fused(again)
    assert tb.recipe(again).dumps() == recipe.dumps()
    again.load_state_dict(q.state_dict())
    other = Pattern("other", (LINEAR, TANH), **FORMS)
    with pytest.raises(OptionError, match="recipe already says what patterns"):
        tb.prepare(net(), example_inputs=X, settings=recipe, patterns=[OWN, other])
    tb.register_pattern(OWN)
    assert fused(tb.prepare(net(), example_inputs=X, settings=recipe))


def test_without_patterns_a_recipe_is_what_it_was() -> None:
    assert "patterns" not in tb.recipe(tb.prepare(net(), "tensorrt", X)).dumps()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([7], "7 is not a pattern"),
        (["Linear+Tanhh"], "there is no pattern 'Linear.Tanhh'"),
        ([OWN, OWN], "two have the same name"),
    ],
)
def test_other_things_are_refused(wrong: list[object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        tb.prepare(net(), "tensorrt", X, patterns=wrong)
    with pytest.raises(OptionError, match="is not a pattern"):
        tb.register_pattern(wrong)


# -- of packages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["pattern", "list", "module"])
def test_packages_provide_patterns(publish: Callable[..., None], form: str) -> None:
    module = ModuleType("patterns")
    module.OWN = OWN
    publish("chips", PATTERNS_GROUP, own={"pattern": OWN, "list": [OWN], "module": module}[form])
    assert fused(tb.prepare(net(), "tensorrt", X))
    assert "chips" in str(tb.PATTERNS)
    tb.PATTERNS.remove("Linear+Tanh")
    assert not fused(tb.prepare(net(), "tensorrt", X))


def test_a_package_without_patterns_says_so(publish: Callable[..., None]) -> None:
    """Its module is loaded all the same, and registers kinds of operators."""
    publish("kinds", PATTERNS_GROUP, none=())
    publish("forgetful", PATTERNS_GROUP, no_pattern=[])
    with pytest.warns(UserWarning, match="could not be loaded") as caught:
        tb.prepare(net(), "tensorrt", X)
    (warning,) = caught
    assert "'no_pattern'" in str(warning.message)
    assert "'none'" not in str(warning.message)


def test_a_clash_names_both(publish: Callable[..., None]) -> None:
    publish("chips", PATTERNS_GROUP, own=OWN)
    publish("rival", PATTERNS_GROUP, own=Pattern("Linear+Tanh", (LINEAR, TANH), **FORMS))
    with pytest.raises(OptionError, match=r"by both (chips and rival|rival and chips)"):
        tb.prepare(net(), "tensorrt", X)


def test_a_clash_with_a_pattern_of_ours_names_both(publish: Callable[..., None]) -> None:
    rival = Pattern("Linear", (LINEAR,), qat=qnn.QatLinear, axis=lambda layer: 0)
    publish("rival", PATTERNS_GROUP, own=rival)
    with pytest.raises(OptionError, match="'Linear' is provided by both torch_bridge and rival"):
        tb.prepare(net(), "tensorrt", X)


def test_a_broken_package_is_named_in_the_warning(publish: Callable[..., None]) -> None:
    publish("sick", PATTERNS_GROUP, ill="no_such_module:PATTERN")
    with pytest.warns(UserWarning, match=r"'ill' could not be loaded: ModuleNotFound.*'sick'"):
        tb.prepare(net(), "tensorrt", X)
    assert "could not be loaded" in str(tb.PATTERNS)
