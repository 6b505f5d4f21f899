"""Weights in fewer bits: no further off than half a step, and only where they must be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.quant.qparams import QParams
from passes.narrow_weights import NarrowWeights
from tests.models.build import apply, parse, reasons, tensor, weight

STEP = np.float32([0.5, 0.01, 3.0])


def layer(codes: np.ndarray, **fields: object) -> Model:
    model = parse(
        """g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {0, 0, 0, 0, 0, 0}>
        { y = MatMul(x, w) }"""
    )
    tensor(model, "w").values = codes.astype(np.float32) * STEP
    return weight(model, "w", **{"scale": STEP, "axis": 1, **fields})


def result(model: Model) -> tuple[QParams, np.ndarray]:
    (node,) = model.nodes(FAKE_QUANTIZE)
    values = array(node.inputs[0])
    assert values is not None
    return params_of(node), params_of(node).fake(values)


@settings(max_examples=60, deadline=None)
@given(arrays.arrays(np.int64, (2, 3), elements=st.integers(-128, 127)), st.integers(3, 7))
def test_largest_codes_fit_and_nothing_moves_by_more_than_half_a_step(
    codes: np.ndarray, bits: int
) -> None:
    half = 1 << bits - 1
    before = codes.astype(np.float32) * STEP
    made, trace = apply(layer(codes), NarrowWeights(bits=bits))
    params, values = result(made)
    fits = np.all((codes >= -half) & (codes < half), axis=0)
    assert bool(trace.rewrites) == (not fits.all())
    np.testing.assert_array_equal(params.scale[fits], STEP[fits])
    np.testing.assert_array_equal(values[:, fits], before[:, fits])
    if not trace.rewrites:
        assert "fit" in reasons(trace)
        return
    assert (params.lo, params.hi) == (-half, half - 1)
    stored = params.quantize(values)
    assert -half <= stored.min()
    assert stored.max() < half
    assert np.all(np.abs(values - before) <= params.scale * 0.50001)
    # No larger than it must be: the largest code of a channel that moved is an end of the range.
    ends = (stored.min(axis=0) == -half) | (stored.max(axis=0) == half - 1)
    assert ends[~fits].all()
    assert apply(made, NarrowWeights(bits=bits))[1].rewrites == []


def test_the_error_is_told() -> None:
    _, trace = apply(layer(np.array([[127, 1, 0], [3, 2, -1]])), NarrowWeights())
    (told,) = trace.rewrites
    # 3 steps of 127 become 1 of 63, which is 2.016: 0.984 of 127 off.
    assert told == "'w': 7 bits, off by up to 0.77 % of its largest value"


def test_the_quantized_weight_is_rounded_not_the_float_one_behind_it() -> None:
    model = layer(np.array([[127, 0, 0], [3.4, 0, 0]]))  # 3 in 8 bits, 1.49 of the new steps
    params, values = result(apply(model, NarrowWeights())[0])
    assert values[1, 0] == params.scale[0]  # and not two of them: 3.4 / 2.016 is 1.69


def test_one_scale_per_tensor() -> None:
    model = layer(np.array([[100, 0, 0], [0, 0, 0]]), scale=np.float32(0.5), axis=None)
    params, values = result(apply(model, NarrowWeights())[0])
    assert params.axis is None
    assert values[0, 0] == pytest.approx(50)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"qtype": "uint8", "zero_point": 128}, "uint8"),
        ({"qtype": "int16"}, "int16"),
        ({"zero_point": 5}, "zero point is not 0"),
        ({"qtype": "float8e4m3fn"}, "float8"),
    ],
)
def test_what_is_declined(fields: dict[str, object], why: str) -> None:
    _, trace = apply(layer(np.array([[100, 0, 0], [0, 0, 0]]), **fields), NarrowWeights())
    assert trace.rewrites == []
    assert why in reasons(trace)
