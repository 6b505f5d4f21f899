"""Counts of float32 values by their upper 16 bits: a histogram that needs no range in advance.

The upper 16 bits of a float32 are its sign, its 8 bits of exponent and the first 7 of its mantissa.
Taken as an integer k, they order the positive numbers, so bin k holds the values

    (-1)^sign * [m, m'),   m and m' the float32 whose upper bits are k and k + 1

of relative width 2^-7 or less. Two histograms are merged by adding integers, so the result does not
depend on the order of the samples or on how they were divided among machines.

Bins are numbered in the order of their values: bin `ZERO` holds 0, the negative numbers come before
it. The extremes are exact, with -0 taken as 0: which of the two is the smaller one depends on the
order. Of an array with more than `MOST_COUNTED`
values every n-th is counted, which changes no range by more than chance does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxq.quant.qparams import Array

Counts = npt.NDArray[np.int64]

_INFINITE = 0x7F80
"""Upper bits of infinity."""
_TINY = (127 - 48) << 7
"""Upper bits of 2^-48. Whatever is smaller counts as 0: its bins would be more than all others."""
ZERO = (1 << 15) - _TINY
"""The number of the bin of 0."""
_UPPER = 1 if sys.byteorder == "little" else 0
"""Which half of a float32 in memory is the upper one."""
MOST_COUNTED = 1 << 16
"""Values of one array that are counted. Fewer would cost as much as this many, and wait."""


class BitHistogram:
    """How many values lie in each bin, and the exact extremes."""

    __slots__ = ("_counts", "_first", "_used", "_waiting", "high", "low")

    def __init__(self) -> None:
        self.low, self.high = np.float32(np.inf), np.float32(-np.inf)
        self._counts: Counts = np.zeros(0, np.int64)
        self._first = 0
        """The number of the first bin among `_counts`: most tensors use a part of them."""
        self._waiting = np.empty(0, np.uint16)
        self._used = 0

    def add(self, values: Array, extremes: tuple[np.float32, np.float32] | None = None) -> None:
        """Count the values of an array of any float type; whoever knows `extremes` saves time."""
        flat = np.ascontiguousarray(values, np.float32).reshape(-1)
        if not flat.size:
            return
        self.widen(*(extremes or (flat.min(), flat.max())))
        # An odd distance meets all channels and columns, whose numbers are mostly even.
        distance = -(-flat.size // MOST_COUNTED) | 1
        upper = flat.view(np.uint16)[_UPPER :: 2 * distance]
        if not self._waiting.size:
            self._waiting = np.empty(MOST_COUNTED, np.uint16)
        if self._used + upper.size > MOST_COUNTED:
            self._settle()
        self._waiting[self._used : self._used + upper.size] = upper
        self._used += upper.size

    def widen(self, low: np.float32, high: np.float32) -> None:
        """Take in extremes without counting values."""
        # Adding 0 makes 0 of -0.
        self.low = np.minimum(self.low, low) + np.float32(0)
        self.high = np.maximum(self.high, high) + np.float32(0)

    def merge(self, other: BitHistogram) -> None:
        """Add the counts of another histogram."""
        other._settle()
        self.widen(other.low, other.high)
        if other._counts.size:
            self._add(other._first, other._counts)

    def _settle(self) -> None:
        if self._used:
            self._count(self._waiting[: self._used])
            self._used = 0

    def _count(self, upper: npt.NDArray[np.uint16]) -> None:
        positive, negative = np.bincount(upper, minlength=1 << 16).reshape(2, -1)
        zeros = positive[:_TINY].sum() + negative[:_TINY].sum()
        # Only the bins between the extremes, of which most tensors have few.
        first, last = (max(_upper_bits(end), _TINY - 1) for end in (-self.low, self.high))
        counts = np.concatenate(
            [negative[first : _TINY - 1 : -1], [zeros], positive[_TINY : last + 1]]
        )
        self._add(ZERO - (first - _TINY + 1), counts)

    def _add(self, first: int, counts: Counts) -> None:
        if not self._counts.size:
            self._first, self._counts = first, counts.copy()
            return
        start = min(first, self._first)
        end = max(first + counts.size, self._first + self._counts.size)
        if end - start > self._counts.size:
            wider = np.zeros(end - start, np.int64)
            at = self._first - start
            wider[at : at + self._counts.size] = self._counts
            self._first, self._counts = start, wider
        at = first - self._first
        self._counts[at : at + counts.size] += counts

    # -- looking ------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """The number of values that were counted."""
        return int(self._counts.sum()) + self._used

    @property
    def is_finite(self) -> bool:
        """Whether no value was infinite or NaN."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))

    def bins(self) -> tuple[Array, Array, Counts]:
        """Lower edges, upper edges and counts of the bins in use, in the order of their values.

        The edges are float64 and lie within the exact extremes.
        """
        self._settle()
        (used,) = np.nonzero(self._counts)
        numbers = used + self._first
        low, high = np.float64(self.low), np.float64(self.high)
        edges = (
            np.clip(lower_edges(numbers), low, high),
            np.clip(lower_edges(numbers + 1), low, high),
        )
        return *edges, self._counts[used]

    # -- files --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Plain arrays and numbers that `from_state` takes."""
        self._settle()
        extremes = np.array([self.low, self.high], np.float32)
        return {"extremes": extremes, "first": self._first, "counts": self._counts}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> BitHistogram:
        """The histogram whose `state` this was."""
        made = cls()
        made.low, made.high = np.asarray(state["extremes"], np.float32)
        made._first, made._counts = int(state["first"]), np.asarray(state["counts"], np.int64)
        last = made._first + made._counts.size
        if made._counts.ndim != 1 or made._first < 0 or last > 2 * ZERO + 1:
            raise ValueError("its counts are not those of a histogram")
        if made._counts.min(initial=0) < 0 or np.isnan([made.low, made.high]).any():
            raise ValueError("its counts or extremes are not those of a histogram")
        return made


def _upper_bits(value: np.float32) -> int:
    """The upper bits of a positive number; 0 for others."""
    return int(value.view(np.uint32)) >> 16 if value > 0 else 0


def lower_edges(numbers: npt.NDArray[np.integer[Any]]) -> Array:
    """The lower end of each bin, by its number; that of the next bin is its upper end."""
    away = numbers - ZERO
    # The bin of 0 ends at the first one on each side.
    keys = np.where(away > 0, away - 1, -away).clip(0) + _TINY
    edges = (np.minimum(keys, _INFINITE).astype(np.uint32) << 16).view(np.float32)
    return np.asarray(np.where(away > 0, 1.0, -1.0) * edges.astype(np.float64))
