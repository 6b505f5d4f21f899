r"""How the values of a tensor lie on its grid: a histogram of few bins, and what follows from it.

An activation is drawn over its real values. Its `BitHistogram` has thousands of bins of different
widths; the cumulated counts C(v), linear within a bin, give the count of any bin [a, b) of the
drawing as C(b) - C(a). A weight is drawn over its codes, x / s_c + z_c, so that channels with
scales of their own share one grid.

Rounding to a grid of step s adds, per value and on average,

    s^2 / 12        inside the range, where the value is larger than half a step
    x^2             below half a step: it becomes 0
    (x - end)^2     beyond an end of the range, where it is cut off
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.canonical.quantizers import Row
from onnxq.graph.dequantized import Values, value_parts
from onnxq.observing.bit_histogram import BitHistogram
from onnxq.quant.qparams import Array, QParams
from onnxq.reporting.clamps import NONE, Bounds
from onnxq.reporting.drawn_grid import DrawnGrid, short

BINS = 64
"""Bins of a drawing: as many as its width shows, and few bytes."""
_BEYOND = 0.25
"""How much of the grid's span is drawn beyond each of its ends, if values lie there."""


@dataclass(frozen=True)
class Distribution:
    """The values of one tensor, and what its grid makes of them."""

    tensor: str
    role: str
    in_codes: bool
    """Whether it is drawn over codes rather than real values."""
    extremes: tuple[float, float]
    """The smallest and the largest value, in the unit of the drawing."""
    ends: tuple[float, float]
    """The ends of the drawing."""
    shares: tuple[float, ...]
    """The share of all values in each bin."""
    outside: tuple[float, float]
    """The shares of values below and above the drawing."""
    grid: DrawnGrid | None
    clipped: float = 0.0
    """The share of values that the grid cuts off."""
    used: float = 1.0
    """The share of the grid between the extremes."""
    sqnr: float = math.inf
    """What the rounding of this tensor alone leaves of its signal, in dB."""
    clip_noise: float = 0.0
    """The share of that noise that comes from values that are cut off."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object, as the page draws it."""
        found: dict[str, Any] = {
            "role": self.role,
            "codes": self.in_codes,
            "extremes": [short(v) for v in self.extremes],
            "ends": [short(v) for v in self.ends],
            # Six digits after the point: less cannot be seen.
            "bins": [round(share, 6) for share in self.shares],
            "outside": [round(share, 8) for share in self.outside],
            "clipped": round(self.clipped, 8),
            "used": round(self.used, 4),
            "sqnr": round(self.sqnr, 2) if math.isfinite(self.sqnr) else None,
        }
        return found if self.grid is None else found | {"grid": self.grid.to_json()}


def of_activation(
    tensor: str, seen: BitHistogram, row: Row | None, clamp: Bounds = NONE
) -> Distribution | None:
    """The distribution of what was seen of a tensor, over its grid; None if nothing was.

    Values beyond `clamp` count as its ends: the network itself cuts them off there.
    """
    lows, highs, counts = seen.bins()
    lows, highs = np.clip(lows, *clamp), np.clip(highs, *clamp)
    total = int(counts.sum())
    if not total:
        return None
    grid = None if row is None else DrawnGrid.of(row, in_codes=False)
    low, high = (float(end) for end in np.clip([seen.low, seen.high], *clamp))
    extremes = low, high
    cumulated = _Cumulated(lows, highs, counts / total)
    ends, shares, outside = _drawn(cumulated, extremes, grid)
    clipped, sqnr, clip_noise = 0.0, math.inf, 0.0
    if grid is not None:
        half = grid.step / 2
        first, last = grid.ends[0] - half, grid.ends[1] + half
        clipped = max(0.0, float(1.0 - cumulated.below(last) + cumulated.below(first)))
        clipped = 0.0 if low >= first and high <= last else clipped
        sqnr, clip_noise = _rounding(lows, highs, counts, grid)
    used = _used(extremes, grid)
    return Distribution(
        *(tensor, "activation", False, extremes, ends, shares, outside, grid),
        clipped=clipped,
        used=used,
        sqnr=sqnr,
        clip_noise=clip_noise,
    )


def of_weight(tensor: str, values: Values, row: Row | None) -> Distribution | None:
    """The distribution of a constant, in codes if it has a grid; None if it is empty."""
    grid = None if row is None else DrawnGrid.of(row, in_codes=True)
    params = row if isinstance(row, QParams) and grid is not None else None
    shape = tuple(values.shape)
    clipped = total = 0
    signal = noise = 0.0
    found = BitHistogram()
    for at, part in value_parts(values):
        x = np.asarray(part, np.float64)
        if not np.isfinite(x).all():
            return None
        if params is not None and grid is not None:
            signal += float(np.square(x).sum())
            noise += float(np.square(x - params.fake_block(part, shape, at)).sum())
            scale, zero = params.block_of(shape, at)
            x = x / scale + zero
            outside = (x < grid.ends[0] - 0.5) | (x > grid.ends[1] + 0.5)
            clipped += int(np.count_nonzero(outside))
        total += x.size
        found.add(x)
    if not total:
        return None
    lows, highs, counts = found.bins()
    extremes = float(found.low), float(found.high)
    cumulated = _Cumulated(lows, highs, counts / counts.sum())
    ends, shares, outside_ends = _drawn(cumulated, extremes, grid, whole=params is not None)
    return Distribution(
        *(tensor, "weight", params is not None, extremes, ends, shares, outside_ends, grid),
        clipped=clipped / total,
        used=_used(extremes, grid),
        sqnr=10 * math.log10(signal / noise) if signal and noise else math.inf,
    )


class _Cumulated:
    """The share of values below any number, linear within a bin."""

    def __init__(self, lows: Array, highs: Array, shares: Array) -> None:
        after = np.cumsum(shares)
        self._at = np.stack([lows, highs], axis=1).reshape(-1)
        self._share = np.stack([after - shares, after], axis=1).reshape(-1)

    def below(self, value: Any) -> Any:
        return np.interp(value, self._at, self._share, left=0.0, right=1.0)


def _drawn(
    cumulated: _Cumulated,
    extremes: tuple[float, float],
    grid: DrawnGrid | None,
    *,
    whole: bool = False,
) -> tuple[tuple[float, float], tuple[float, ...], tuple[float, float]]:
    """The ends of the drawing, its bins, and what is outside.

    With `whole`, a bin holds the same number of codes as every other.
    """
    if grid is not None and whole:
        levels = grid.codes[1] - grid.codes[0] + 1
        each = -(-levels // BINS)
        bins = -(-levels // each)
        left, right = grid.codes[0] - 0.5, grid.codes[0] - 0.5 + bins * each
    elif grid is not None:
        room = _BEYOND * (grid.ends[1] - grid.ends[0])
        left = max(min(extremes[0], grid.ends[0]), grid.ends[0] - room)
        right = min(max(extremes[1], grid.ends[1]), grid.ends[1] + room)
        bins = BINS
    else:
        (left, right), bins = extremes, BINS
    if right <= left:  # a constant
        room = abs(left) or 1.0
        left, right = left - room / 2, right + room / 2
    edges = np.linspace(left, right, bins + 1)
    below = cumulated.below(edges)
    # The last value belongs to the last bin.
    below[-1] = 1.0 if extremes[1] <= right else below[-1]
    below[0] = 0.0 if extremes[0] >= left else below[0]
    shares = tuple(float(share) for share in np.diff(below))
    return (left, right), shares, (float(below[0]), float(1.0 - below[-1]))


def _rounding(lows: Array, highs: Array, counts: Array, grid: DrawnGrid) -> tuple[float, float]:
    """The signal-to-noise ratio of rounding to the grid in dB, and the share of cut-off values."""
    middle = (lows + highs) / 2
    beyond = np.maximum(np.maximum(grid.ends[0] - middle, middle - grid.ends[1]), 0.0)
    inside = np.where(np.abs(middle) < grid.step / 2, np.square(middle), grid.step**2 / 12)
    cut = beyond > grid.step / 2
    clipping = float(np.dot(counts[cut], np.square(beyond[cut])))
    noise = float(np.dot(counts[~cut], inside[~cut])) + clipping
    signal = float(np.dot(counts, np.square(middle)))
    if not signal or not noise:
        return math.inf, 0.0
    return 10 * math.log10(signal / noise), clipping / noise


def _used(extremes: tuple[float, float], grid: DrawnGrid | None) -> float:
    if grid is None:
        return 1.0
    low, high = (min(max(v, grid.ends[0]), grid.ends[1]) for v in extremes)
    return (high - low) / (grid.ends[1] - grid.ends[0])


__all__ = ["BINS", "Distribution", "of_activation", "of_weight"]
