"""Words are decimal numbers or they are not: nothing that only Python reads."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.parsing.decimal_text import integer, number

NEITHER = (
    *("", " ", "1_0", " 1", "1 ", "1\n", "+1", "nan", "inf", "-inf", "infinity", "0x1p3", "0x10"),
    *("\u0661", "\uff11", "1\u0660", "--1", "-", ".", "e5", "1e", "1e+", "1.2.3", "01", "1" * 5000),
    *("1,5", "1d3", "1e0x1", "\u22121", "1\0", "None", "True"),
)


@given(st.integers(-(2**70), 2**70))
def test_integers_come_back(value: int) -> None:
    assert integer(str(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back(value: float) -> None:
    for text in (repr(value), f"{value:.17e}", f"{value:.3f}"):
        if len(text) < 400:
            assert number(text) == float(text)


@pytest.mark.parametrize("text", ["5.", ".5", "-.5", "1E3", "1e+05"])
def test_what_tools_write_as_well(text: str) -> None:
    assert number(text) == float(text)
    assert integer(text) is None


@pytest.mark.parametrize("text", NEITHER)
def test_anything_else_is_no_number(text: str) -> None:
    assert integer(text) is None
    assert number(text) is None


def test_what_a_double_cannot_hold_is_no_number() -> None:
    assert number("1e400") is None
    assert number("-1e309") is None
    found = number("1e-400")
    assert found is not None
    assert math.isclose(found, 0.0)
