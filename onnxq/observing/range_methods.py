r"""Ways to choose the range of a quantizer from the values that were seen.

    min-max              the extremes: nothing is clipped
    moving-average       the average of each sample's extremes
    percentile[:P]       the range that leaves out (100 - P) % of the values, half at each end
    mse                  the range with the least squared error on its own grid
    entropy              the range that keeps most of the distribution's information

All are functions of the same statistics. The squared error of a range is summed over the bins of
the histogram, with the middle of a bin for its values. A bin wider than a step of the grid holds
values at all distances from a code, whose mean square is step^2 / 12.

Entropy compares |x| in 2048 equal bins, clipped at n of them (P), with the same distribution in as
many levels as the grid has (Q), by sum P log(P / Q), and takes the best n. Only symmetric ranges,
and those of values of one sign, can be found so: others are the extremes, as are those of grids
with more levels than bins. The bin of 0 gets the count of its neighbour first: 0 is on every grid,
and the many zeros after a Relu would hide what clipping costs the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnxq.errors import OptionError, near_matches
from onnxq.observing.bit_histogram import BitHistogram
from onnxq.quant.grid_of_range import grid_numbers
from onnxq.quant.qparams import Array
from onnxq.quant.scheme import QSpec

Range = tuple[float, float]

_CANDIDATES = 48
_ENTROPY_BINS = 2048


@dataclass(frozen=True)
class Seen:
    """What is known of a tensor's values."""

    histogram: BitHistogram
    average: Range
    """The averages of the samples' smallest and largest values."""


@dataclass(frozen=True)
class Method:
    """One way to choose a range; as text, its name with the number after a colon."""

    name: str = "min-max"
    percentile: float = 99.999

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise OptionError(
                f"there is no calibration method '{self.name}'",
                fix=near_matches(self.name, METHODS),
            )
        if not 50 < self.percentile <= 100:
            raise OptionError(
                f"percentile {self.percentile:g} is not between 50 and 100",
                fix="write it like percentile:99.99",
            )

    @classmethod
    def parse(cls, text: str) -> Method:
        """Read the text form."""
        name, colon, number = text.partition(":")
        if not colon:
            return cls(name)
        try:
            value = float(number)
        except ValueError:
            value = np.nan
        if name != "percentile" or not np.isfinite(value):
            raise OptionError(
                f"cannot read the calibration method '{text}'",
                fix="write a name, or percentile:99.99",
            )
        return cls(name, value)

    def __str__(self) -> str:
        return f"{self.name}:{self.percentile:g}" if self.name == "percentile" else self.name

    @property
    def needs_distribution(self) -> bool:
        """Whether more than the extremes decides."""
        return self.name not in ("min-max", "moving-average")

    def range(self, seen: Seen, spec: QSpec) -> Range:
        """The range for a quantizer of `spec`; it contains 0. There must be values."""
        if not seen.histogram.low <= seen.histogram.high:
            raise ValueError("no value was seen")
        low, high = METHODS[self.name](self, seen, spec)
        return min(low, 0.0), max(high, 0.0)


def _extremes(_: Method, seen: Seen, __: QSpec) -> Range:
    return float(seen.histogram.low), float(seen.histogram.high)


def _average(_: Method, seen: Seen, __: QSpec) -> Range:
    return seen.average


def _percentile(method: Method, seen: Seen, _: QSpec) -> Range:
    lower, upper, counts = seen.histogram.bins()
    _need_counts(counts)
    left_out = (1 - method.percentile / 100) / 2 * counts.sum()
    below, above = np.cumsum(counts), np.cumsum(counts[::-1])[::-1]
    # The first bin that more than this share lies below or in, from each end.
    return float(lower[np.argmax(below > left_out)]), float(
        upper[len(counts) - 1 - np.argmax((above > left_out)[::-1])]
    )


def _least_error(_: Method, seen: Seen, spec: QSpec) -> Range:
    low, high = min(float(seen.histogram.low), 0.0), max(float(seen.histogram.high), 0.0)
    lower, upper, counts = seen.histogram.bins()
    _need_counts(counts)
    shrunk = np.linspace(1.0, 0.2, _CANDIDATES)
    best = shrunk[np.argmin(squared_error(lower, upper, counts, low * shrunk, high * shrunk, spec))]
    if spec.symmetric or low == 0.0 or high == 0.0:
        return low * best, high * best
    # Then each end for itself, twice, from what is best for both; a range of nothing is none.
    shares = [float(best), float(best)]
    for end in (0, 1, 0, 1):
        tried = np.append(np.linspace(1.0, 0.0 if shares[1 - end] else 0.03, 33), shares[end])
        lows, highs = (tried if end == at else np.full(tried.size, shares[at]) for at in (0, 1))
        errors = squared_error(lower, upper, counts, low * lows, high * highs, spec)
        shares[end] = float(tried[np.argmin(errors)])
    return low * shares[0], high * shares[1]


def _need_counts(counts: Array) -> None:
    if not counts.size:
        raise ValueError("only the extremes were kept")


def squared_error(
    lower: Array, upper: Array, counts: Array, lows: Array, highs: Array, spec: QSpec
) -> Array:
    """The summed squared error of each of several ranges, on bins with these ends."""
    middle, width = (lower + upper) / 2, upper - lower
    lo, hi = spec.range
    scale, zero = (v[:, None] for v in grid_numbers(lows, highs, spec))
    codes = np.clip(np.rint(middle / scale) + zero, lo, hi)
    error = ((codes - zero) * scale - middle) ** 2
    inside = (middle >= (lo - zero) * scale) & (middle <= (hi - zero) * scale)
    error = np.where(inside & (width > scale), scale**2 / 12, error)
    return np.asarray((error * counts).sum(axis=1))


def _most_information(_: Method, seen: Seen, spec: QSpec) -> Range:
    low, high = float(seen.histogram.low), float(seen.histogram.high)
    lo, hi = spec.range
    levels = max(hi, 2) if spec.symmetric and lo < 0 else hi - lo + 1
    reach = max(-low, high)
    if (not spec.symmetric and low < 0 < high) or levels >= _ENTROPY_BINS or reach <= 0:
        return low, high
    counts = _magnitudes(seen.histogram, reach)
    counts[0] = counts[1]
    # Steps of a fortieth of the bins tell the optimum well enough; the widest range is one of them.
    ends = range(_ENTROPY_BINS, levels - 1, -max(1, (_ENTROPY_BINS - levels) // 40))
    best = min(ends, key=lambda n: _divergence(counts, n, levels))
    limit = reach * best / _ENTROPY_BINS
    return max(low, -limit), min(high, limit)


def _magnitudes(histogram: BitHistogram, reach: float) -> Array:
    """How many values of each magnitude there are, in equal bins up to `reach`."""
    lower, upper, counts = histogram.bins()
    _need_counts(counts)
    ends = np.sort(np.abs(np.stack([lower, upper])), axis=0)
    edges = np.linspace(0.0, reach, _ENTROPY_BINS + 1)
    # The share of each bit bin below an edge: it is linear within the bin, and a step where the bin
    # holds a single value.
    width = ends[1] - ends[0]
    total = np.zeros(edges.size)
    for first in range(0, counts.size, 512):
        some = slice(first, first + 512)
        above = edges[:, None] - ends[0, some]
        share = above / np.where(width[some] > 0, width[some], 1.0)
        share = np.where(width[some] > 0, np.clip(share, 0.0, 1.0), above > 0)
        share[-1] = 1.0
        total += share @ counts[some]
    return np.diff(total)


def _divergence(counts: Array, end: int, levels: int) -> float:
    """How much of the distribution up to bin `end` is lost in so many levels."""
    kept = counts[:end].copy()
    kept[-1] += counts[end:].sum()
    groups = np.arange(end) * levels // end
    filled = counts[:end] > 0
    mass = np.bincount(groups, counts[:end], levels)
    bins = np.bincount(groups, filled, levels)
    spread = np.where(filled, (mass / np.maximum(bins, 1))[groups], 0.0)
    if not kept.any():
        return 0.0
    p, q = kept / kept.sum(), spread / (spread.sum() or 1.0)
    both = (p > 0) & (q > 0)
    lost = float(p[(p > 0) & ~both].sum())
    return float((p[both] * np.log(p[both] / q[both])).sum()) + lost * 50


METHODS: dict[str, Callable[[Method, Seen, QSpec], Range]] = {
    "min-max": _extremes,
    "moving-average": _average,
    "percentile": _percentile,
    "mse": _least_error,
    "entropy": _most_information,
}

__all__ = ["METHODS", "Method", "Range", "Seen"]
