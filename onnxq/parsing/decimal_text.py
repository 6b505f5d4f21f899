"""Decimal numbers in text: the one place that turns words of a file into numbers.

    integer   -?(0 | [1-9][0-9]*)
    number    an integer, with digits behind a point or an exponent if any

Python's own `int` and `float` also take 1_0, digits of other scripts, spaces, nan and infinity,
and C's take hexadecimals: what one tool reads from such a word is not what another does. Numbers
that a double cannot hold are none either.
"""

from __future__ import annotations

import math
import re

LONGEST = 400
"""Digits: 10^308 written out is the longest that a double holds."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def integer(text: str) -> int | None:
    """The whole number that `text` is; None where it is none."""
    return int(text) if len(text) <= LONGEST and _INTEGER.fullmatch(text) else None


def number(text: str) -> float | None:
    """The finite number that `text` is; None where it is none."""
    if len(text) > LONGEST or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None
