"""Ranges before sigmoids, cut where these are flat."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.calibration.flat_sides import FLAT, without_flat_sides
from onnxq.calibration.ranges import KnownRange
from onnxq.workflows.quantize import quantize
from tests.models.build import parse, tensor

WIDE = KnownRange.of(-100.0, 30.0, "seen")


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("y = Sigmoid(x)", -FLAT, FLAT),
        ("s = Sigmoid(x) y = Mul(x, s)", -FLAT, 30.0),
        ("s = Sigmoid(x) t = Mul(x, s) y = Add(x, t)", -100.0, 30.0),  # x is seen as it is, too
        ("s = Sigmoid(x) t = Mul(x, s) y = Add(s, t)", -100.0, 30.0),
        ("s = Sigmoid(y) y = Mul(x, x)", -100.0, 30.0),
        ("y = Relu(x)", -100.0, 30.0),
    ],
)
def test_what_is_cut(body: str, low: float, high: float) -> None:
    model = parse(f"g (float[4] x) => (float[4] y) {{ {body} }}")
    found = without_flat_sides(WIDE, tensor(model, "x"), model)
    assert (float(found.low), float(found.high)) == (low, high)
    assert ("flattens" in found.source) == (low != -100.0)


def test_a_range_within_is_kept() -> None:
    model = parse("g (float[4] x) => (float[4] y) { y = Sigmoid(x) }")
    small = KnownRange.of(-3.0, 2.0, "seen")
    assert without_flat_sides(small, tensor(model, "x"), model) is small


def test_silu_after_far_negative_values_is_as_good_as_without_them() -> None:
    """One channel of the layer is far below 0: its SiLU is 0, and the others keep their codes."""
    rng = np.random.default_rng(0)
    numbers = ", ".join(f"{v:.4f}" for v in rng.normal(size=64))
    text = f"""g (float[1, 8, 16, 16] x) => (float[1, 8, 16, 16] y)
        <float[8, 8, 1, 1] w = {{{numbers}}}, float[8] b = {{-300.0, 0, 0, 0, 0, 0, 0, 0}},
         float[8, 8, 1, 1] v = {{{numbers}}}> {{
        c = Conv(x, w, b)
        s = Sigmoid(c)
        m = Mul(c, s)
        y = Conv(m, v)
    }}"""
    data = [{"x": rng.normal(size=(1, 8, 16, 16)).astype(np.float32)} for _ in range(4)]
    done = quantize(parse(text), "onnxruntime", data, method="min-max")
    assert done.noise is not None
    assert "flattens" in done.range_sources["c"]
    assert done.noise.sqnr > 30  # 18 dB with codes down to -300
