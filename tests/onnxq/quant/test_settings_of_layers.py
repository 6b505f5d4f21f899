"""Rules for what contains layers, for classes and functions, and for tensors that layers share."""

from __future__ import annotations

import math
from typing import Any

import pytest

from onnxq.errors import OptionError
from onnxq.quant.settings import LayerSettings, Settings, joined


class Block:
    """A class of a front end."""


LAYERS: dict[int, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    1: (("encoder.0.attn.query",), ("Linear", Block)),
    2: (("encoder.0.mlp",), ("Linear", math.sqrt)),
    3: (("/encoder/1/attn/MatMul",), ("MatMul",)),
}


def chosen(selector: Any) -> set[int]:
    return set(Settings.of([[selector, "float"]]).of_layers(LAYERS))


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("encoder.*.attn", {1}),
        ("encoder.?", {1, 2}),
        ("enco?er", {1, 2}),
        ("/encoder/?", {3}),
        (r"re:encoder\.\d", {1, 2}),
        (r"re:encoder\.\d\.attn", {1}),
        (Block, {1}),
        (math.sqrt, {2}),
    ],
)
def test_what_is_selected(selector: Any, found: set[int]) -> None:
    assert chosen(selector) == found


@pytest.mark.parametrize(
    ("selector", "words", "near"),
    [(int, "no layer matches 'int'", "Block"), (math.cbrt, "no layer matches 'cbrt'", "sqrt")],
)
def test_classes_and_functions_without_a_match(selector: Any, words: str, near: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        chosen(selector)
    assert near in caught.value.fix


def test_what_layers_ask_for_a_tensor_they_share() -> None:
    made = joined(
        [
            LayerSettings(activation_bits=4, weight_bits=2, float=False),
            LayerSettings(activation_bits=8, symmetric=False, method="mse"),
            LayerSettings.of({"symmetric": True, "method": "entropy", "observer": "lsq"}),
            LayerSettings.of({"algorithm": "pact", "pot_scale": True, "weight_symmetric": True}),
        ]
    )
    assert made == LayerSettings(
        activation_bits=8,
        symmetric=True,
        pot_scale=True,
        method="mse",
        activation_observer="lsq",
        activation_algorithm="pact",
    )
    assert joined([]) == LayerSettings()
    assert joined([LayerSettings(symmetric=False)]).symmetric is False


def test_default_bits_give_way_to_stated_ones() -> None:
    made = LayerSettings(weight_bits=4).with_default_bits(8)
    assert (made.weight_bits, made.activation_bits) == (4, 8)
    assert LayerSettings().with_default_bits(None) == LayerSettings()
