"""OpenVINO's FakeQuantize: a grid given by its two ends and its number of levels.

    y = ol                                                  if x <= il
    y = oh                                                  if x >  ih
    y = round((x - il) / (ih - il) * (L - 1)) / (L - 1) * (oh - ol) + ol     in between

With equal input and output ends that is a uniform grid of step s = (ih - il) / (L - 1), on which
zero must be one of the levels: number n = -il / s. In codes lo..lo+L-1 the zero point is lo + n.

The ends are float32, rounded from (lo - z) * s and (hi - z) * s, so the quotient above is off by
up to a few float32 steps. `grid_scale` returns the scale whose rounded ends are exactly the ends of
the file: what `ends` wrote comes back to the bit. Several scales may have these ends, if the
product is rounded to a coarser step than the scale; then it is the nearest to the quotient. n may
differ from an integer by the rounding of the two ends, which is at most (L - 1) * 2^-22.

The file does not specify the type of the codes. Zero at the lowest level reads as unsigned, at
the middle one (number L // 2) as signed around zero, elsewhere as unsigned with a zero point.

Rounding counts from il here and from zero in the canonical form. They agree except for inputs half
way between two levels (if n is odd) and within float32 rounding of that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onnxq.quant.qparams import Array, QParams
from onnxq.quant.qtypes import QType, qtype

DOMAIN = "org.openvinotoolkit"
FAKE_QUANTIZE = f"{DOMAIN}::FakeQuantize"

MOST_LEVELS = 1 << 16

_NEAR = 4  # how many float32 steps around the quotient may be the scale


def ends(params: QParams) -> tuple[Array, Array]:
    """The smallest and largest value of a grid, in float32."""
    low, high = params.range  # exact in float64: 17-bit integers times 24-bit scales
    return low.astype(np.float32), high.astype(np.float32)


def zero_level(low: Array, high: Array, levels: int) -> Array | None:
    """The number of the level that is zero, counted from `low`; None if no level is."""
    first, last = low.astype(np.float64), high.astype(np.float64)
    exact = -first * (levels - 1) / (last - first)
    number = np.rint(exact)
    if np.any(np.abs(exact - number) > (levels - 1) * 2.0**-22):
        return None
    return number.astype(np.int64)


def grid_scale(low: Array, high: Array, levels: int, zero: Array) -> Array:
    """The float32 step whose grid, with level number `zero` at 0, has these ends."""
    first, last = low.astype(np.float64), high.astype(np.float64)
    quotient = (last - first) / (levels - 1)
    best = quotient.astype(np.float32)
    candidates = [best]
    up = down = best
    for _ in range(_NEAR):
        up, down = np.nextafter(up, np.float32(np.inf)), np.nextafter(down, np.float32(0))
        candidates += [up, down]
    tried = np.stack(candidates)
    exact = tried.astype(np.float64)
    # Another tool may have rounded one end differently: then the scale that matches one of them,
    # preferably the farther one.
    below, above = (zero > levels - 1 - zero) + 1, (zero <= levels - 1 - zero) + 1
    matches = below * ((-zero * exact).astype(np.float32) == low)
    matches = matches + above * (((levels - 1 - zero) * exact).astype(np.float32) == high)
    distance = np.where(matches == matches.max(axis=0), np.abs(exact - quotient), np.inf)
    return np.asarray(np.take_along_axis(tried, np.argmin(distance, axis=0)[None], axis=0)[0])


class Codes(NamedTuple):
    """The codes of the levels of a grid: their type and the lowest of them."""

    kind: QType
    lo: int


def codes(zero: Array, levels: int) -> Codes:
    """The codes of a grid whose level number `zero` (per channel perhaps) is 0."""
    size = 8 if levels <= 256 else 16
    if np.any(zero) and np.all(zero == levels // 2):
        return Codes(qtype(f"int{size}"), -(levels // 2))
    return Codes(qtype(f"uint{size}"), 0)
