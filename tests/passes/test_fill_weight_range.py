"""A wider range for weights moves no code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from passes.fill_weight_range import FillWeightRange
from tests.models.build import apply, bit_equal, parse, quantize, run, tensor, weight


def layer(values: list[float], **fields: object) -> Model:
    model = parse(
        "g (float[N,1] x) => (float[N,4] y) <float[1,4] w = {0,0,0,0}> { y = MatMul(x, w) }"
    )
    tensor(model, "w").values = np.float32([values])
    return weight(model, "w", **fields)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-20, 20, width=32), min_size=4, max_size=4),
    st.sampled_from(
        [
            ("int8", -64, 63, -128, 127),
            ("int8", -127, 127, -128, 127),
            ("uint8", 0, 200, 0, 255),
            ("int8", -7, 7, -8, 7),
        ]
    ),
)
def test_values_stay(values: list[float], case: tuple[str, int, int, int, int]) -> None:
    kind, lo, hi, low, high = case
    model = layer(values, qtype=kind, lo=lo, hi=hi)
    made, trace = apply(model, FillWeightRange())
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert (params.lo, params.hi) == (low, high)
    assert len(trace.rewrites) == 1
    x = np.float32([[1], [-0.3]])
    assert bit_equal(run(made, x), run(model, x))
    assert apply(made, FillWeightRange())[1].rewrites == []


@pytest.mark.parametrize("kind", ["int8", "int4", "float8e4m3fn"])
def test_whole_ranges_are_left(kind: str) -> None:
    assert apply(layer([1, 2, 3, 4], qtype=kind), FillWeightRange())[1].rewrites == []


def test_activations_are_left() -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Neg(x) }")
    assert apply(quantize(model, "x", lo=-64, hi=63), FillWeightRange())[1].rewrites == []
