"""Bounds of the network itself, which a quantizer may keep in its place."""

from __future__ import annotations

import math

import pytest

from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from onnxq.reporting.clamps import NONE, clamp_of, clamps_of
from tests.models.build import parse

MODEL = """g (float[4] x) => (float[4] a, float[4] b, float[4] c)
    <float low = {0.0}, float high = {6.0}> {
    u = Neg(x)
    a = Relu(u)
    v = Neg(x)
    b = Clip(v, low, high)
    w = Neg(x)
    d = Relu(w)
    c = Add(d, w)
}"""


def test_only_what_nothing_else_reads_is_clamped() -> None:
    assert clamps_of(parse(MODEL)) == {"u": (0.0, math.inf), "v": (0.0, 6.0)}


def test_attributes_of_an_old_clip() -> None:
    old = parse("g (float[4] x) => (float[4] y) { u = Neg(x)\n y = Clip<max=6.0>(u) }", opset=9)
    assert clamps_of(old) == {"u": (-math.inf, 6.0)}


@pytest.mark.parametrize(("zero", "low"), [(0, 0.0), (7, -math.inf)])
def test_without_a_trusted_model_a_range_from_zero_is_a_relu(zero: int, low: float) -> None:
    row = QParams("x", qtype("uint8"), 0.1, zero)
    assert clamp_of("x", row, None) == (low, math.inf)
    assert clamp_of("x", row, {}) == NONE
    assert clamp_of("x", row, {"x": (1.0, 2.0)}) == (1.0, 2.0)
    assert clamp_of("x", None, None) == NONE
