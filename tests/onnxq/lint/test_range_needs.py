"""Which tensors want a range and have none."""

from __future__ import annotations

from collections.abc import Callable

from onnxq.graph import Model
from onnxq.lint.range_needs import LINEAR, missing_ranges
from onnxq.operators.placement import INPUTS_ONLY, TOTAL_INTEGER, Placement
from onnxq.quant.qparams import Reader
from tests.models.build import parse, quantize, weight

NET = """g (float[1,2,4,4] x) => (float[1,3] y)
    <float[2,2,1,1] w = {1,2,3,4}, float[2] s = {1,1}, float[2] z = {0,0},
     float[2,3] v = {1,2,3,4,5,6}> {
        c = Conv(x, w)
        n = BatchNormalization(c, s, z, z, s)
        r = Relu(n)
        p = GlobalAveragePool(r)
        f = Flatten(p)
        y = Gemm(f, v)
    }"""


def names(model: Model, placement: Placement, *ranges: str) -> list[str]:
    has: Callable[[str], bool] = set(ranges).__contains__
    return [need.tensor for need in missing_ranges(model, placement, has)]


def test_layers_that_multiply_want_input_and_weight() -> None:
    assert names(parse(NET), LINEAR) == ["w", "v", "x", "p"]
    assert names(parse(NET), LINEAR, "w", "v", "x", "p") == []


def test_a_range_behind_a_move_serves() -> None:
    assert names(parse(NET), LINEAR, "w", "v", "x", "f") == []


def test_batch_norm_is_part_of_its_layer() -> None:
    assert names(parse(NET), INPUTS_ONLY, "w", "v") == ["x", "r", "p"]


def test_results_may_have_their_range_behind_what_is_absorbed() -> None:
    have = ("w", "v", "x", "r", "p", "y")
    assert names(parse(NET), TOTAL_INTEGER, *have) == []
    assert names(parse(NET), TOTAL_INTEGER, *have[:-1]) == ["y"]


def test_a_range_for_one_of_two_readers_is_not_enough() -> None:
    model = parse(
        """g (float[1,4] x) => (float[1,2] y, float[2,2] z)
        <float[4,2] w = {1,2,3,4,5,6,7,8}, int64[2] to = {2,2}, float[2,2] v = {1,2,3,4}> {
            y = MatMul(x, w)
            m = Reshape(x, to)
            z = MatMul(m, v)
        }"""
    )
    assert names(model, LINEAR, "w", "v", "m") == ["x"]
    assert names(model, LINEAR, "w", "v", "x") == []


def test_quantizers_in_place_do_not_hide_the_float_graph() -> None:
    model = weight(quantize(parse(NET), "x"), "w")
    assert names(model, LINEAR, "x", "w") == ["v", "p"]


def test_a_need_names_its_layer() -> None:
    (first, *_) = missing_ranges(parse(NET), LINEAR, lambda name: False)
    assert first.layer is not None
    assert "Conv" in first.rule


def test_the_range_of_a_shared_weight_may_be_for_some_layers_only() -> None:
    model = parse(
        """g (float[1,2] x) => (float[1,2] z) <float[2,2] w = {1,2,3,4}> {
            y = MatMul(x, w)
            z = MatMul(y, w)
        }"""
    )
    first = Reader("y", 1)
    found = missing_ranges(model, LINEAR, lambda _: True, lambda _, reader: reader == first)
    assert [(need.tensor, need.rule) for need in found] == [
        ("w", "the weight of (MatMul producing 'z')")
    ]
