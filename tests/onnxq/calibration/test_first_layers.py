"""First layers that cost nothing in float are found by counting multiplications."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.calibration.first_layers import cheap_first_layers
from onnxq.calibration.float_form import float_form
from onnxq.calibration.layer_cost import multiplications
from onnxq.calibration.placing import Placing
from onnxq.quant.settings import Settings
from tests.models.build import parse_filled

NET = """g (float[1,3,{size},{size}] x) => (float[1,64,{size},{size}] y) {{
    a = Conv<pads = [1, 1, 1, 1]>(x, first)  b = Relu(a)
    c = Conv<pads = [1, 1, 1, 1]>(b, second) d = Relu(c)
    y = Conv<pads = [1, 1, 1, 1]>(d, third)
}}"""


def placing(width: int, rules: object = None, size: object = 16) -> Placing:
    shapes = {"first": (width, 3, 3, 3), "second": (16, width, 3, 3), "third": (64, 16, 3, 3)}
    model, _ = float_form(parse_filled(NET.format(size=size), **shapes))
    return Placing(model, find_backend("onnxruntime"), Settings.of(rules))


def test_multiplications_are_those_of_the_definition() -> None:
    layers = [node for node, _ in placing(8).weights]
    assert [multiplications(node) for node in layers] == [
        16 * 16 * outputs * inputs * 9 for outputs, inputs in ((8, 3), (16, 8), (64, 16))
    ]


def test_matrix_products_count_their_rows() -> None:
    text = "g (float[N,5,8] x) => (float[N,5,4] y) { y = MatMul(x, w) }"
    model, _ = float_form(parse_filled(text, w=(8, 4)))
    (layer,) = model.nodes("MatMul")
    assert multiplications(layer) == 5 * 8 * 4


@pytest.mark.parametrize(("width", "found"), [(8, 1), (16, 1), (64, 0)])
def test_only_a_small_share_is_cheap(width: int, found: int) -> None:
    parts = np.array([3 * width, 16 * width, 64 * 16])
    assert (parts[0] <= 0.05 * parts.sum()) == bool(found)
    assert len(cheap_first_layers(placing(width))) == found


def test_a_rule_of_the_user_is_not_overruled() -> None:
    assert cheap_first_layers(placing(8, [["first", {"bits": 8}]])) == ()


def test_unknown_shapes_cost_unknown_time() -> None:
    assert cheap_first_layers(placing(8, size="S")) == ()
