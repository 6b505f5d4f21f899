"""Grids of ranges, against the same in Python's float64 and fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.quant.grid_of_range import grid_numbers, grid_of_range
from onnxq.quant.qparams import Role
from onnxq.quant.scheme import QSpec

SPECS = {
    "uint8": QSpec(("uint8",)),
    "int8": QSpec(("int8",)),
    "int8 symmetric": QSpec(("int8",), symmetric=True),
    "int8 narrow": QSpec(("int8",), symmetric=True, lo=-127),
    "uint8 symmetric": QSpec(("uint8",), symmetric=True),
    "uint8 of 7 bits": QSpec(("uint8",), hi=127),
    "uint4": QSpec(("uint4",)),
    "int4 narrow": QSpec(("int4",), symmetric=True, lo=-7),
    "int16": QSpec(("int16",)),
    "power of two": QSpec(("int8",), symmetric=True, power_of_two=True),
    "power of two, any zero point": QSpec(("uint8",), power_of_two=True),
}
ENDS = st.floats(0, 2.0**100, width=32, allow_subnormal=False)


@pytest.mark.parametrize("name", SPECS)
@given(low=ENDS, high=ENDS)
def test_the_grid_covers_the_range_and_zero_is_on_it(name: str, low: float, high: float) -> None:
    spec = SPECS[name]
    if spec.symmetric and spec.range[0] == 0:
        low = 0.0  # a target for values that are never negative
    lo, hi = spec.range
    scale, zero = (v.item() for v in grid_numbers(np.float64(-low), np.float64(high), spec))
    assert scale > 0
    assert scale == float(np.float32(scale))
    assert lo <= zero <= hi
    if scale == 1.0 and max(low, high) < 1e-30:
        return  # next to nothing: the scale would not be a normal number
    # The zero point is rounded, so an end may be half a step outside; the float32 of the scale
    # and the exponent of a power of two are rounded too.
    slack = Fraction(scale) * ((0 if spec.symmetric else Fraction(1, 2)) + Fraction(hi, 10**5))
    assert (lo - zero) * Fraction(scale) <= Fraction(-low) + slack
    assert (hi - zero) * Fraction(scale) >= Fraction(high) - slack


@pytest.mark.parametrize("name", SPECS)
@given(low=ENDS, high=ENDS)
def test_the_grid_is_no_wider_than_needed(name: str, low: float, high: float) -> None:
    spec = SPECS[name]
    lo, hi = spec.range
    if spec.symmetric:
        needed = max(high / hi, -low / lo if lo else 0.0)
    else:
        needed = (high + low) / (hi - lo)
    scale = float(grid_numbers(np.float64(-low), np.float64(high), spec)[0])
    if needed < np.finfo(np.float32).tiny:
        assert scale == 1.0 or scale == np.finfo(np.float32).tiny
    elif spec.power_of_two:
        assert math.frexp(scale)[0] == 0.5
        assert scale < 2 * needed
    else:
        assert scale == float(np.float32(needed))


def test_a_range_that_leaves_zero_out_is_widened() -> None:
    scale, zero = grid_numbers(np.array([2.0, -5.0]), np.array([5.0, -2.0]), SPECS["uint8"])
    assert scale.tolist() == [float(np.float32(5 / 255))] * 2
    assert zero.tolist() == [0, 255]


@pytest.mark.parametrize("name", SPECS)
def test_a_range_of_nothing_has_the_scale_1(name: str) -> None:
    scale, zero = grid_numbers(np.zeros(2), np.zeros(2), SPECS[name])
    assert scale.tolist() == [1.0, 1.0]
    assert np.array_equal(
        zero, np.zeros(2) if SPECS[name].symmetric else [SPECS[name].range[0]] * 2
    )


def test_powers_of_two_stay_those_they_are() -> None:
    spec = SPECS["power of two"]
    for exponent in (-20, 0, 3):
        scale, _ = grid_numbers(np.float64(0), np.float64(127 * 2.0**exponent), spec)
        assert scale == 2.0**exponent


def test_the_largest_range_of_few_codes_stays_finite() -> None:
    spec = QSpec(("int2",), symmetric=True, power_of_two=True)
    scale, _ = grid_numbers(np.float64(0), np.float64(3.4e38), spec)
    assert scale == 2.0**127


def test_per_channel_parameters() -> None:
    low, high = np.array([-1.0, 0.0]), np.array([1.0, 12.7])
    made = grid_of_range("w", low, high, SPECS["int8 narrow"], axis=0, role=Role.WEIGHT)
    assert (made.tensor, made.axis, made.role) == ("w", 0, Role.WEIGHT)
    assert (made.lo, made.hi) == (-127, 127)
    np.testing.assert_allclose(made.scale, [1 / 127, 0.1], rtol=1e-6)
    assert np.array_equal(made.zero_point, [0, 0])
