"""Quantizers restated for a target: other codes, the same values."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from passes.fit_grids import FitGrids
from tests.models.build import apply, bit_equal, ops, parse, quantize, reasons, run, weight

BODY = "g (float[N] x) => (float[N] y) { r = Relu(x) y = Neg(r) }"
LAYER = """g (float[2,3] x) => (float[2,2] y)
    <float[3,2] w = {0.1, -2, 0.31, 4, 0.5, -6}> { y = MatMul(x, w) }"""
X = np.linspace(-40, 40, 1001, dtype=np.float32)
SYMMETRIC = FitGrids(weights="int8 symmetric", activations="int8 symmetric full-range")


def test_uint8_around_128_becomes_int8() -> None:
    model = quantize(parse(BODY), "x", qtype="uint8", zero_point=128)
    made, trace = apply(model, SYMMETRIC)
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype.name, int(params.zero_point)) == ("int8", 0)
    assert "uint8 0..255, zero point 128" in trace.rewrites[0]
    assert bit_equal(run(made, X), run(model, X))


def test_four_bits_in_eight_are_clamped_by_a_clip() -> None:
    model = quantize(parse(BODY), "x", qtype="int4", scale=np.float32(1.5))
    made, _ = apply(model, SYMMETRIC)
    assert ops(made)[:2] == ["Clip", "FakeQuantize"]
    assert params_of(made.nodes(FAKE_QUANTIZE)[0]).qtype.name == "int8"
    assert bit_equal(run(made, X), run(model, X))


def test_a_tensor_that_is_never_negative_needs_no_clip() -> None:
    model = quantize(parse(BODY), "r", lo=-127)
    made, _ = apply(model, SYMMETRIC)
    assert "Clip" not in ops(made)
    assert params_of(made.nodes(FAKE_QUANTIZE)[0]).lo == -128
    assert bit_equal(run(made, X), run(model, X))


def test_a_weight_is_restated_by_the_codes_it_uses() -> None:
    model = parse(LAYER)
    weight(model, "w", qtype="uint8", scale=np.float32(0.05), zero_point=130)
    made, _ = apply(model, SYMMETRIC)
    params = params_of(made.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype.name, params.tensor) == ("int8", "w")
    assert not params.zero_point.any()
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    assert bit_equal(run(made, x), run(model, x))


def test_a_weight_that_was_clamped_stays_so() -> None:
    """4-bit codes end at 7 steps; in 8 bits the same float would reach further."""
    model = parse(LAYER)
    weight(model, "w", qtype="int4", scale=np.float32(0.5))
    made, _ = apply(model, SYMMETRIC)
    assert params_of(made.nodes(FAKE_QUANTIZE)[0]).qtype.name == "int8"
    x = np.eye(2, 3, dtype=np.float32)
    assert bit_equal(run(made, x), run(model, x))


def test_equal_scales_per_channel_are_one() -> None:
    model = parse(LAYER)
    weight(model, "w", scale=np.float32([0.05, 0.05]), axis=1)
    made, _ = apply(model, SYMMETRIC)
    assert params_of(made.nodes(FAKE_QUANTIZE)[0]).axis is None
    x = np.eye(2, 3, dtype=np.float32)
    assert bit_equal(run(made, x), run(model, x))


def test_what_cannot_be_restated_is_left_with_the_rule() -> None:
    model = quantize(parse(BODY), "x", qtype="uint8", zero_point=3)
    made, trace = apply(model, SYMMETRIC)
    assert trace.rewrites == []
    assert "zero point 3 (must be 0)" in reasons(trace)
    assert bit_equal(run(made, X), run(model, X))


def test_what_fits_is_left_alone() -> None:
    model = quantize(parse(BODY), "x")
    _, trace = apply(model, SYMMETRIC)
    assert not trace.rewrites
    assert not trace.skips


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_shared_weights_keep_their_other_reader(kind: str) -> None:
    model = parse("""g (float[2,2] x) => (float[2,2] y, float[2,2] z)
        <float[2,2] w = {0.12, -2, 0.31, 4}> { y = MatMul(x, w) z = Add(x, w) }""")
    fields = {"qtype": kind, "zero_point": 0 if kind == "int8" else 128}
    weight(model, "w", **fields)
    made, _ = apply(model, FitGrids(weights="int8 symmetric power-of-two"))
    assert bit_equal(
        run(made, np.eye(2, dtype=np.float32)), run(model, np.eye(2, dtype=np.float32))
    )
