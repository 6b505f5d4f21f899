"""Decimal numbers in text: the only place that turns words of a file into numbers.

    integer   -?(0 | [1-9][0-9]*)
    number    an integer, optionally with digits after a point and an exponent

Python's own `int` and `float` also take 1_0, digits of other scripts, spaces, nan and infinity,
and C's take hexadecimals: tools disagree on how to read such a word. Numbers that do not fit a
double are rejected too.
"""

from __future__ import annotations

import math
import re

LONGEST = 400
"""Most digits: the longest number that fits a double is 10^308 written out."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def integer(text: str) -> int | None:
    """The integer in `text`; None if it is not one."""
    return int(text) if len(text) <= LONGEST and _INTEGER.fullmatch(text) else None


def number(text: str) -> float | None:
    """The finite number in `text`; None if it is not one."""
    if len(text) > LONGEST or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None
