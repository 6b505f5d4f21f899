"""The time of float layers, counted on networks small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing
from onnxq.calibration.trials.layer_cost import PER_ELEMENT, FloatTime, products_of
from tests.models.build import parse_filled

# A wide middle: 8 channels in, 32 between, 8 out of 100 places each; the second is depthwise.
NET = """g (float[1,8,10,10] x) => (float[1,8,10,10] y) {
    a = Conv(x, w1)  b = Conv<pads = [1, 1, 1, 1], group = 32>(a, w2)  y = Conv(b, w3)
}"""
FEED = {"x": np.ones((1, 8, 10, 10), np.float32)}
SHAPES = {"w1": (32, 8, 1, 1), "w2": (32, 1, 3, 3), "w3": (8, 32, 1, 1)}


RECTIFIED = """g (float[1,8,10,10] x) => (float[1,8,10,10] y) {
    a = Conv(x, w1)  d = Relu(a)  b = Conv<pads = [1, 1, 1, 1], group = 32>(d, w2)  e = Relu(b)
    y = Conv(e, w3)
}"""


def network(text: str = NET) -> tuple[FloatTime, list[int]]:
    model, _ = float_form(parse_filled(text, **SHAPES))
    placing = Placing(model, find_backend("onnxruntime"))
    nodes = [node for node, _ in placing.weights]
    return FloatTime(placing, FEED), [id(node) for node in nodes]


@pytest.mark.parametrize("text", [NET, RECTIFIED], ids=["plain", "activations run inside"])
def test_conversions_count_where_codes_and_floats_meet(text: str) -> None:
    time, (first, second, third) = network(text)
    products = 0.75 * 25600
    # The input need not be quantized, but the wide tensor behind it must.
    assert time.more(set(), {first}) == products + PER_ELEMENT * (3200 - 800)
    # The next one moves the border and sums few products: only the border counts.
    assert time.more({first}, {second}) == 0
    assert time.more({first, second}, {third}) == products - PER_ELEMENT * (3200 + 800)
    assert time.more(set(), {second}) == PER_ELEMENT * 2 * 3200
    whole = sum(
        (
            time.more(set(), {first}),
            time.more({first}, {second}),
            time.more({first, second}, {third}),
        )
    )
    assert time.more(set(), {first, second, third}) == whole


def test_neighbours_share_a_quantizer() -> None:
    time, (first, second, third) = network()
    assert time.beside({first}) == {second}
    assert time.beside({second}) == {first, third}


@pytest.mark.parametrize("size", ["10", "S"])
def test_products_are_those_of_the_definition(size: str) -> None:
    """Whether the model states its sizes or a sample shows them."""
    model, _ = float_form(parse_filled(NET.replace("10", size), **SHAPES))
    layers = model.nodes("Conv")
    found = products_of(model, layers, FEED)
    assert [found[id(node)] for node in layers] == [25600, 28800, 25600]


@pytest.mark.parametrize("rows", ["5", "R"])
def test_products_of_matrices_and_of_turned_convolutions(rows: str) -> None:
    text = f"g (float[N,{rows},8] x) => (float[N,{rows},4] y) {{ y = MatMul(x, w) }}"
    model, _ = float_form(parse_filled(text, w=(8, 4)))
    feed = {"x": np.ones((1, 5, 8), np.float32)}
    assert list(products_of(model, model.nodes("MatMul"), feed).values()) == [5 * 8 * 4]
    text = f"g (float[1,2,{rows},5] x) => (float[1,6,A,B] y) {{ y = ConvTranspose(x, w) }}"
    model, _ = float_form(parse_filled(text, w=(2, 6, 3, 3)))
    feed = {"x": np.ones((1, 2, 5, 5), np.float32)}
    assert list(products_of(model, model.nodes("ConvTranspose"), feed).values()) == [50 * 54]
