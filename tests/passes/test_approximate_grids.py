"""Quantizers moved onto grids that a target has, with the error they are reported with."""

from __future__ import annotations

import re

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from passes.approximate_grids import ApproximateGrids
from tests.models.build import apply, bit_equal, parse, quantize, reasons, run, weight

BODY = "g (float[N] x) => (float[N] y) { y = Identity(x) }"
RELU = "g (float[N] x) => (float[N] y) { r = Relu(x) y = Neg(r) }"
LAYER = """g (float[2,3] x) => (float[2,2] y)
    <float[3,2] w = {0.1, -2, 0.31, 4, 0.5, -6}> { y = MatMul(x, w) }"""
STEP = ApproximateGrids(weights="int8 symmetric -127..127", activations="int8 symmetric")


def reported(text: str) -> float:
    """The share of the range that a rewrite says."""
    found = re.search(r"off by up to ([\d.e-]+) %", text)
    assert found is not None
    return float(found[1]) / 100


def test_asymmetric_activations_become_symmetric_over_the_same_range() -> None:
    model = quantize(parse(BODY), "x", qtype="uint8", zero_point=30)
    made, trace = apply(model, STEP)
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert not params.zero_point.any()
    assert params.range[0] <= -3
    assert np.isclose(params.range[1], 22.5)
    x = np.linspace(-3, 22.5, 20001, dtype=np.float32)
    error = np.abs(run(made, x)[0] - run(model, x)[0]).max() / 25.5
    said = reported(trace.rewrites[0])
    assert 0.9 * said <= error <= 1.01 * said


def test_what_is_never_negative_takes_half_the_range() -> None:
    wide = ApproximateGrids(activations="int8/uint8 symmetric")
    model = quantize(parse(RELU), "r", qtype="int16", scale=np.float32(1e-3))
    made, _ = apply(model, wide)
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert params.qtype.name == "uint8"
    assert np.isclose(params.range[1], 32.767)


def test_channels_become_one_tensor() -> None:
    model = parse(LAYER)
    weight(model, "w", scale=np.float32([0.004, 0.05]), axis=1)
    made, trace = apply(model, STEP)
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert params.axis is None
    assert (params.lo, params.hi) == (-127, 127)
    x = np.eye(2, 3, dtype=np.float32)
    off = np.abs(run(made, x)[0] - run(model, x)[0]).max()
    assert off <= float(params.scale) / 2
    assert off / 6 <= 1.01 * reported(trace.rewrites[0])


def test_a_weight_is_rounded_from_what_was_trained() -> None:
    """0.74 is 0.5 on the coarse grid of training, and that is what the network learned with."""
    model = parse(
        "g (float[1,1] x) => (float[1,2] y) <float[1,2] w = {0.74, 31.5}> { y = MatMul(x, w) }"
    )
    weight(model, "w", qtype="uint8", scale=np.float32(0.5), zero_point=1)
    made, _ = apply(model, STEP)
    (y,) = run(made, np.ones((1, 1), np.float32))
    assert abs(y[0, 0] - 0.5) <= 31.5 / 127 / 2


def test_exact_ones_are_left() -> None:
    model = quantize(parse(BODY), "x")
    made, trace = apply(model, STEP)
    x = np.linspace(-20, 20, 101, dtype=np.float32)
    assert not trace.rewrites
    assert bit_equal(run(made, x), run(model, x))


def test_no_grid_is_near_float8() -> None:
    model = quantize(parse(BODY, opset=19), "x", qtype="float8e4m3fn")
    _, trace = apply(model, STEP)
    assert not trace.rewrites
    assert "no grid allowed by the rules" in reasons(trace)


@pytest.mark.parametrize(("zero", "op"), [(0, "Relu"), (30, "Clip")])
def test_what_the_old_grid_clamped_stays_clamped(zero: int, op: str) -> None:
    """A zero point at the lowest code is a Relu; a grid around zero lets what is below through."""
    model = quantize(parse(BODY), "x", qtype="uint8", zero_point=zero)
    made, trace = apply(model, STEP)
    assert [n.op for n in made.nodes() if n.op in ("Relu", "Clip")] == [op]
    x = np.linspace(-60, 60, 20001, dtype=np.float32)
    error = np.abs(run(made, x)[0] - run(model, x)[0]).max() / 25.5
    said = reported(trace.rewrites[0])
    assert 0.9 * said <= error <= 1.01 * said
    assert "clamped" not in trace.rewrites[0]


def test_what_is_clamped_a_little_further_out_is_told_instead() -> None:
    model = quantize(parse(BODY), "x", qtype="uint8", zero_point=100)
    made, trace = apply(model, STEP)
    assert not any(n.op in ("Relu", "Clip") for n in made.nodes())
    said = re.search(r"and ([\d.e-]+) % where it was clamped", trace.rewrites[0])
    assert said is not None
    x = np.linspace(-60, 60, 20001, dtype=np.float32)
    error = np.abs(run(made, x)[0] - run(model, x)[0]).max() / 25.5
    assert np.isclose(float(said[1]) / 100, error, rtol=0.05)


def test_what_is_never_negative_needs_no_clamp() -> None:
    model = quantize(parse(RELU), "r", qtype="uint8")
    made, _ = apply(model, STEP)
    assert [n.op for n in made.nodes() if n.op in ("Relu", "Clip")] == ["Relu"]
