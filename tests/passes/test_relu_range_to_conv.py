"""Quantizers in front of Relu instead of behind it."""

from __future__ import annotations

import numpy as np
import pytest

from passes.relu_range_to_conv import ReluRangeToConv
from tests.models.build import apply, bit_equal, ops, parse, quantize, reasons, run

LAYER = "c = MatMul(x, w)"
HEAD = "g (float[64,2] x) => (float[64,2] y) <float[2,2] w = {1, -2, 0.31, 4}, float zero = {0}, "


def model(function: str, more: str = "", top: str = "float top = {6}", **fields: object):  # type: ignore[no-untyped-def]
    made = parse(f"{HEAD}{top}> {{ {LAYER} r = {function} y = Neg(r) {more} }}")
    return quantize(made, "r", **fields)


def x() -> np.ndarray:
    return np.random.default_rng(0).normal(scale=3, size=(64, 2)).astype(np.float32)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"qtype": "uint8", "zero_point": 0, "scale": np.float32(0.02)},
        {"zero_point": -128},
        {"zero_point": 5, "lo": -100, "hi": 30},
        {"scale": np.float32([0.02, 0.1]), "axis": 1},
    ],
)
def test_values_stay(fields: dict[str, object]) -> None:
    before = model("Relu(c)", **fields)
    after, trace = apply(before, ReluRangeToConv())
    assert ops(after) == ["MatMul", "FakeQuantize", "Relu", "Neg"]
    assert len(trace.rewrites) == 1
    assert bit_equal(run(after, x()), run(before, x()))


@pytest.mark.parametrize(
    ("fields", "moves"),
    [
        ({"qtype": "uint8", "scale": np.float32(6 / 255)}, True),
        ({"qtype": "uint8", "scale": np.float32(0.02)}, True),
        ({"qtype": "uint8", "scale": np.float32(0.125)}, True),  # 6 lies on the grid
        ({"qtype": "uint8", "scale": np.float32(0.7)}, False),
    ],
)
def test_clip_must_not_end_between_two_steps(fields: dict[str, object], moves: bool) -> None:
    before = model("Clip(c, zero, top)", **fields)
    after, trace = apply(before, ReluRangeToConv())
    assert bool(trace.rewrites) is moves
    assert moves or "between two grid values" in reasons(trace)
    assert bit_equal(run(after, x()), run(before, x()))


def test_clip_from_elsewhere_stays() -> None:
    before = model("Clip(c, top)", qtype="uint8")
    _, trace = apply(before, ReluRangeToConv())
    assert "the lower bound of its Clip is not 0" in reasons(trace)


def test_another_reader_keeps_it_in_place() -> None:
    body = f"{HEAD}float top = {{6}}> {{ {LAYER} r = Relu(c) n = Neg(r) y = Add(n, c) }}"
    _, trace = apply(quantize(parse(body), "r"), ReluRangeToConv())
    assert "the input of Relu has other consumers" in reasons(trace)


def test_a_relu_behind_no_layer_is_no_concern() -> None:
    before = quantize(parse("g (float[N] x) => (float[N] y) { r = Relu(x) y = Neg(r) }"), "r")
    _, trace = apply(before, ReluRangeToConv())
    assert not trace.rewrites
    assert not trace.skips
