"""QONNX's operators in numpy: rounding modes as its documentation tabulates them, and ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.dialects import qonnx

NUMBERS = [5.5, 2.5, 1.6, 1.1, 1.0, -1.0, -1.1, -1.6, -2.5, -5.5]
TABLE = {
    "ROUND": [6, 2, 2, 1, 1, -1, -1, -2, -2, -6],
    "HALF_EVEN": [6, 2, 2, 1, 1, -1, -1, -2, -2, -6],
    "CEIL": [6, 3, 2, 2, 1, -1, -1, -1, -2, -5],
    "FLOOR": [5, 2, 1, 1, 1, -1, -2, -2, -3, -6],
    "UP": [6, 3, 2, 2, 1, -1, -2, -2, -3, -6],
    "DOWN": [5, 2, 1, 1, 1, -1, -1, -1, -2, -5],
    "ROUND_TO_ZERO": [5, 2, 1, 1, 1, -1, -1, -1, -2, -5],
    "HALF_UP": [6, 3, 2, 1, 1, -1, -1, -2, -3, -6],
    "HALF_DOWN": [5, 2, 2, 1, 1, -1, -1, -2, -2, -5],
}


@pytest.mark.parametrize("mode", sorted(qonnx.ROUNDING))
def test_rounding_modes(mode: str) -> None:
    assert qonnx.ROUNDING[mode](np.float32(NUMBERS)).tolist() == TABLE[mode]


def test_half_modes_do_not_round_what_is_just_below_a_half() -> None:
    below = np.nextafter(np.float32(0.5), np.float32(0))
    for mode in ("HALF_UP", "HALF_DOWN", "ROUND"):
        assert qonnx.ROUNDING[mode](np.asarray(below)) == 0


@pytest.mark.parametrize(
    ("bits", "signed", "narrow", "lo", "hi"),
    [
        (8, True, False, -128, 127),
        (8, True, True, -127, 127),
        (8, False, False, 0, 255),
        (8, False, True, 0, 254),
        (2, True, True, -1, 1),
        (1, False, False, 0, 1),
        (32, True, False, -(2**31), 2**31 - 1),
    ],
)
def test_ranges(bits: int, signed: bool, narrow: bool, lo: int, hi: int) -> None:
    assert qonnx.quant_range(bits, signed, narrow) == (lo, hi)
    assert qonnx.bits_of(lo, hi, signed) == (bits, narrow)


@pytest.mark.parametrize(
    ("lo", "hi", "signed"), [(0, 200, False), (1, 255, False), (-100, 127, True), (-1, 0, True)]
)
def test_ranges_without_a_number_of_bits(lo: int, hi: int, signed: bool) -> None:
    assert qonnx.bits_of(lo, hi, signed) is None


@given(st.integers(-40, 40), st.integers(0, 60))
def test_every_number_of_bits_found_has_that_range(lo: int, width: int) -> None:
    found = qonnx.bits_of(lo, lo + width, lo < 0)
    if found is not None:
        assert qonnx.quant_range(found[0], lo < 0, found[1]) == (lo, lo + width)


def test_quant_clamps_and_adds_the_zero_point_before_rounding() -> None:
    one = np.float32(1)
    x = np.float32([-9, -0.5, 0.5, 1.5, 9])
    assert qonnx.quant(x, one, np.float32(0), -4, 3, "ROUND").tolist() == [-4, 0, 0, 2, 3]
    # 0.5 + 1 is half way between 1 and 2, and 2 is even: the code 2 means the value 1.
    assert qonnx.quant(x, one, np.float32(1), -4, 3, "ROUND").tolist() == [-5, -1, 1, 1, 2]


def test_bipolar_quant_has_no_zero() -> None:
    x = np.float32([-2, -0.0, 0.0, 0.1])
    assert qonnx.bipolar_quant(x, np.float32(0.5)).tolist() == [-0.5, 0.5, 0.5, 0.5]


def test_truncation_drops_bits_of_rounded_codes() -> None:
    x = np.float32([7.4, 6, 5, -5])
    codes = qonnx.truncated(x, np.float32(1), np.float32(0), 4.0, "FLOOR")
    assert codes.tolist() == [1, 1, 1, -2]
    codes = qonnx.truncated(x, np.float32(1), np.float32(0), 4.0, "ROUND")
    assert codes.tolist() == [2, 2, 1, -1]
