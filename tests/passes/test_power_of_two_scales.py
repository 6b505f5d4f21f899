"""Scales rounded to powers of two, nearest by what they do."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from passes.power_of_two_scales import PowerOfTwoScales
from tests.models.build import apply, bit_equal, parse, quantize, reasons, run, weight

BODY = "g (float[N] x) => (float[N] y) { y = Identity(x) }"
LAYER = """g (float[1,2] x) => (float[1,2] y)
    <float[2,2] w = {0.1, -2, 0.31, 4}> { y = MatMul(x, w) }"""
X = np.linspace(-40, 40, 1001, dtype=np.float32)


def test_powers_of_two_stay() -> None:
    model = quantize(parse(BODY), "x", scale=np.float32(0.125))
    made, trace = apply(model, PowerOfTwoScales())
    assert not trace.rewrites
    assert bit_equal(run(made, X), run(model, X))


@pytest.mark.parametrize("scale", [0.1, 0.3, 3.0])
def test_activations_keep_their_range(scale: float) -> None:
    model = quantize(parse(BODY), "x", scale=np.float32(scale))
    made, trace = apply(model, PowerOfTwoScales())
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert np.frexp(params.scale)[0] == 0.5
    assert scale <= params.scale < 2 * scale
    assert "% of its range" in trace.rewrites[0]


def test_a_range_and_zero_point_are_kept_in_kind() -> None:
    model = quantize(parse(BODY), "x", qtype="uint8", zero_point=20, lo=1, hi=200)
    made, _ = apply(model, PowerOfTwoScales())
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype.name, params.lo, params.hi) == ("uint8", 1, 200)
    half = float(params.scale) / 2  # the zero point is rounded
    assert params.range[0] <= -1.9 + half
    assert params.range[1] >= 18 - half


def test_weights_take_the_power_with_less_error() -> None:
    """One value in the outermost step does not cost all others half of their digits."""
    model = parse(LAYER)
    weight(model, "w", scale=np.float32(0.0316))
    made, _ = apply(model, PowerOfTwoScales())
    chosen = params_of(made.nodes(FAKE_QUANTIZE)[0])
    values = params_of(model.nodes(FAKE_QUANTIZE)[0]).fake(np.float32([[0.1, -2], [0.31, 4]]))
    off = {
        s: np.square(chosen.with_(scale=np.float32(s)).fake(values) - values).mean()
        for s in (2.0**-6, 2.0**-5, 2.0**-4)
    }
    assert float(chosen.scale) == min(off, key=lambda s: off[s])


def test_parts_can_be_left_out() -> None:
    model = quantize(parse(LAYER), "x")
    weight(model, "w", scale=np.float32([0.03, 0.05]), axis=1)
    _, only_weights = apply(model, PowerOfTwoScales(activations=False))
    made, only_activations = apply(model, PowerOfTwoScales(weights=False))
    assert "'w'" in only_weights.rewrites[0]
    assert "'x'" in only_activations.rewrites[0]
    assert len(only_weights.rewrites) == len(only_activations.rewrites) == 1
    assert params_of(made.nodes(FAKE_QUANTIZE)[0]).scale.size in (1, 2)


def test_float8_is_left() -> None:
    model = quantize(parse(BODY, opset=19), "x", qtype="float8e5m2")
    _, trace = apply(model, PowerOfTwoScales())
    assert "float8e5m2" in reasons(trace)
