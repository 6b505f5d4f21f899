"""Rules for layers: the first match wins, four kinds of selectors, JSON, and errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError, OptionError
from onnxq.quant.settings import LayerSettings, Rule, Settings

LAYERS = {
    1: (("encoder.0.attn", "/encoder/0/attn/MatMul"), ("MatMul", "Linear")),
    2: (("encoder.0.mlp",), ("Gemm", "Linear")),
    3: (("encoder.1.attn",), ("MatMul", "Linear")),
    4: (("head",), ("Conv",)),
    5: (("header",), ("Conv",)),
}


def chosen(*rules: Any) -> dict[Any, LayerSettings]:
    return Settings.of(rules).of_layers(LAYERS)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("head", {4}),
        ("encoder", {1, 2, 3}),
        ("encoder.0", {1, 2}),
        ("/encoder/0", {1}),
        ("encoder.*.attn", {1, 3}),
        ("encoder.?.mlp", {2}),
        ("head*", {4, 5}),
        ("encoder.[1].attn", {3}),
        ("re:head", {4}),
        (r"re:encoder\.[01]\..*", {1, 2, 3}),
        ("Conv", {4, 5}),
        ("Linear", {1, 2, 3}),
        ("Gemm", {2}),
    ],
)
def test_selectors(selector: str, found: set[int]) -> None:
    assert set(chosen([selector, "float"])) == found


def test_the_first_match_wins() -> None:
    made = chosen(["head", "float"], ["Conv", {"bits": 4}], ["head*", {"method": "mse"}])
    assert made == {
        4: LayerSettings(float=True),
        5: LayerSettings(weight_bits=4, activation_bits=4),
    }


def test_bits_are_those_of_both_unless_one_is_stated() -> None:
    made = LayerSettings.of({"bits": 4, "activation_bits": 8})
    assert (made.weight_bits, made.activation_bits) == (4, 8)
    made = LayerSettings.of({"algorithm": "lsq", "weight_algorithm": "tqt", "observer": "mse"})
    assert (made.weight_algorithm, made.activation_algorithm) == ("tqt", "lsq")
    assert made.weight_observer == made.activation_observer == "mse"


@pytest.mark.parametrize(
    ("selector", "near"), [("haed", "head"), ("re:heda", "head"), ("Covn", "Conv")]
)
def test_a_selector_without_a_match_is_an_error_with_near_names(selector: str, near: str) -> None:
    with pytest.raises(OptionError, match="no layer matches") as error:
        chosen([selector, "float"])
    assert selector in error.value.what
    assert near in error.value.fix


CHANGES = st.one_of(
    st.just("float"),
    st.fixed_dictionaries(
        {},
        optional={
            "weight_bits": st.integers(2, 16),
            "activation_bits": st.integers(2, 16),
            "method": st.sampled_from(["mse", "percentile:99.9"]),
            "symmetric": st.booleans(),
            "per_channel": st.booleans(),
            "pot_scale": st.booleans(),
            "weight_symmetric": st.booleans(),
            "algorithm": st.just("lsq"),
            "weight_algorithm": st.just("tqt"),
            "activation_observer": st.just("mse"),
        },
    ),
)


@given(st.lists(st.tuples(st.sampled_from(["ä", "head", "re:a.*", "b*", "Conv"]), CHANGES)))
def test_json_round_trip(rules: list[tuple[str, Any]]) -> None:
    made = Settings.of(rules)
    assert Settings.loads(made.dumps()) == made
    assert Settings.of(made.to_json()) == made
    assert Settings.of(made) is made


def test_none_is_no_rules() -> None:
    assert Settings.of(None) == Settings() == Settings.of([])
    assert Settings().of_layers(LAYERS) == {}


@pytest.mark.parametrize(
    "given_",
    [
        "head",
        {"head": "float"},
        3,
        ["head"],
        [["head"]],
        [["head", "float", 1]],
        [["head", "flaot"]],
        [["head", 3]],
        [["head", {"bist": 4}]],
        [["head", {"bits": 1}]],
        [["head", {"bits": 17}]],
        [["head", {"bits": "4"}]],
        [["head", {"bits": True}]],
        [["head", {"method": 3}]],
        [["head", {"symmetric": "yes"}]],
        [["re:(", "float"]],
    ],
)
def test_what_is_no_rule_is_an_error(given_: Any) -> None:
    with pytest.raises(OptionError) as error:
        Settings.of(given_)
    assert error.value.fix


def test_an_unknown_setting_has_near_names() -> None:
    with pytest.raises(OptionError, match="'bist'") as error:
        Settings.of([["head", {"bist": 4}]])
    assert "bits" in error.value.fix


def test_text_that_is_no_json_is_an_error() -> None:
    with pytest.raises(LoadError, match="line 1"):
        Settings.loads('[["head", ')


def test_a_selector_of_a_front_end_matches_nothing_here_and_cannot_be_written() -> None:
    rule = Rule(int, LayerSettings(float=True))
    assert not rule.matches(["int"], ["int"])
    with pytest.raises(OptionError, match="cannot be written"):
        Settings((rule,)).to_json()


@pytest.mark.parametrize(
    ("change", "why"),
    [({"weight_bits": 99}, "weight_bits 99"), ({"bit": 4}, "no setting 'bit'"), ("flot", "'flot'")],
)
def test_the_error_names_the_rule(change: Any, why: str) -> None:
    with pytest.raises(OptionError, match=rf"rule 2 of the settings \('Conv'\): .*{why}"):
        Settings.of([["a", "float"], ["Conv", change]])
