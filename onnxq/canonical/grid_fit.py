"""Another grid for a tensor, within the rules of a target: the same values, or the nearest ones.

Codes count steps t = q - z from zero; a grid is given by its scale s and by the steps it reaches.

The same values (`exact_fit`): steps keep their meaning when codes and zero point move together, so
any type that contains the steps will do, with zero point 0 if the rules require it. Scales that are
all equal along an axis are one scale. A constant uses only some steps, and its values already lie
on the grid, so nothing has to be clamped. Values computed at run time have to be clamped where they
were: by the new range if it ends at the same steps, else by a Clip before it. The lower clamp of a
tensor that is never negative does nothing.

The nearest values (`covering_fit`): the range low..high of the old grid (of a constant: of its
values; per tensor: of all channels) is covered by the finest grid that the rules allow,

    symmetric    s = max(high / hi, low / lo)      z = 0
    else         s = (high - low) / (hi - lo)      z = R(lo - low / s)

A power of two is the next above s, or the one below if that is nearer to the old grid.
What the old grid clamped near zero (a Relu: at zero) the new one does not: `lost_clamp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onnxq.arrays.pieces import blocks, cut, largest
from onnxq.canonical.fake_quantize import container, narrowest
from onnxq.quant.blockwise import code_ends, keeps
from onnxq.quant.qparams import Array, QParams
from onnxq.quant.qtypes import QType, qtype
from onnxq.quant.scheme import QSpec


@dataclass(frozen=True)
class Fit:
    """A grid within the rules."""

    params: QParams
    clip: tuple[float, float] | None = None
    """The range that the tensor must be cut to first; None: the grid itself does it."""


def exact_fit(
    params: QParams, spec: QSpec, *, values: Array | None = None, non_negative: bool = False
) -> Fit | None:
    """A grid within `spec` that gives the same values; None if there is none.

    `values` are those of a constant, already on the grid.
    """
    if params.qtype.floating:
        return None
    for way in spec.ways():
        for grid in _merged(params, way, values):
            for kind in _kinds(grid, way):
                fit = _restated(grid, kind, way, values, non_negative)
                if fit is not None and not any(way.violations(fit.params)):
                    return fit
    return None


def _kinds(params: QParams, spec: QSpec) -> list[QType]:
    """Accepted integer types: the current one, then those at least as wide, then the others."""
    kinds = [k for k in map(qtype, spec.types) if not k.floating and k.bits <= 16]
    return sorted(kinds, key=lambda k: (k != params.qtype, k.bits < params.qtype.bits))


def _merged(params: QParams, spec: QSpec, values: Array | None) -> Iterator[QParams]:
    """The same grid, also with as few scales as the rules require."""
    yield params
    if params.axis is None or (spec.blocks if params.block else spec.per_channel):
        return
    scale, zero_point = params.scale, params.zero_point
    if params.block and spec.per_channel:
        for axis in range(scale.ndim):
            first = tuple(slice(None) if i == axis else slice(1) for i in range(scale.ndim))
            if np.all(scale == scale[first]) and np.all(zero_point == zero_point[first]):
                yield params.with_(
                    scale=scale[first].reshape(-1),
                    zero_point=zero_point[first].reshape(-1),
                    axis=axis,
                    block=0,
                )
    if not np.ptp(scale) and not np.ptp(zero_point):
        yield _channel(params, 0)
    elif values is not None and (finest := _finest(params, float(scale.min()), values)) is not None:
        yield finest


def _finest(params: QParams, scale: float, values: Array) -> QParams | None:
    """One grid of the smallest scale, if it contains all the values of a constant."""
    reach = largest(cut(values)) / scale
    if reach > qtype("int16").hi:
        return None
    kind = qtype("int8" if reach <= 127 else "int16")
    one = params.with_(
        qtype=kind, scale=scale, zero_point=0, axis=None, block=0, lo=kind.lo, hi=kind.hi
    )
    return one if keeps(one, values) else None


def _restated(
    params: QParams, kind: QType, spec: QSpec, values: Array | None, non_negative: bool
) -> Fit | None:
    """The same steps as codes of `kind`."""
    assert params.lo is not None and params.hi is not None
    zero = params.zero_point
    if spec.symmetric:
        new_zero = np.zeros_like(zero)
    elif kind.lo <= params.lo and params.hi <= kind.hi:
        new_zero = zero
    else:
        new_zero = zero + (kind.lo - params.lo)
    shift = new_zero - zero
    lo, hi = params.lo + shift, params.hi + shift  # one pair per channel if zero points differ
    if values is not None:
        used = code_ends(params, values, shift)
        return _holding(params, kind, spec, new_zero, used, lo, hi)
    if np.ptp(shift):
        return None
    low, high = int(lo.flat[0]), int(hi.flat[0])
    least, most = spec.codes(kind) if spec.full_range else (kind.lo, kind.hi)
    if non_negative and low < least <= int(new_zero.min()):
        low = least  # no value is below zero, so no code below the zero point is used
    if low < least or most < high:
        return None
    if _is(kind, low, high):
        same = params.with_(qtype=kind, zero_point=new_zero, lo=low, hi=high)
        if not any(spec.violations(same)):
            return Fit(same)
    whole = params.with_(qtype=kind, zero_point=new_zero, lo=least, hi=most)
    if (non_negative or low == least) and high == most:
        return Fit(whole)
    if params.axis is not None:
        return None
    with np.errstate(over="ignore"):  # a range beyond float32 has no end there
        ends = (np.array([low, high]) - int(new_zero)).astype(np.float32) * np.float32(params.scale)
    return Fit(whole, (float(ends[0]), float(ends[1])))


def _holding(
    params: QParams,
    kind: QType,
    spec: QSpec,
    zero: Array,
    used: tuple[int, int],
    lo: Array,
    hi: Array,
) -> Fit | None:
    """A grid for a constant that uses these codes, with the old range if that is allowed."""
    least, most = min(used[0], int(zero.min())), max(used[1], int(zero.max()))
    ranges = [spec.codes(kind), (kind.lo, kind.hi)]
    if not np.ptp(lo):
        ranges.insert(0, (int(lo.flat[0]), int(hi.flat[0])))
    for low, high in ranges:
        inside = kind.lo <= low <= least and most <= high <= kind.hi
        if inside and _is(kind, low, high):
            fit = params.with_(qtype=kind, zero_point=zero, lo=low, hi=high)
            if not any(spec.violations(fit)):
                return Fit(fit)
    return None


def _is(kind: QType, lo: int, hi: int) -> bool:
    """Whether a quantizer of lo..hi has the type `kind`: -8..7 is int4, also in an int8."""
    return narrowest(container(kind), lo, hi) == kind


# -- the nearest values -----------------------------------------------------------------------


def covering_fit(
    params: QParams, spec: QSpec, *, values: Array | None = None, non_negative: bool = False
) -> QParams | None:
    """The finest grid within `spec` that covers what the old one covers; None if there is none."""
    if params.qtype.floating:
        return None
    axis = _kept_axis(params, spec)
    low, high = _covered(params, axis, values, non_negative)
    positive = not np.any(low < 0)
    kinds = [k for k in _kinds(params, spec) if k.signed or positive or not spec.symmetric]
    if not kinds:
        return None
    if positive and spec.symmetric:
        kinds.sort(key=lambda k: k.signed)  # all codes of an unsigned type are of use
    wide = [k for k in kinds if k.bits >= params.qtype.bits]
    kind = wide[0] if wide else max(kinds, key=lambda k: k.bits)
    if not spec.power_of_two:
        return _grid(params, kind, spec, axis, low, high, None)
    above, below = (_grid(params, kind, spec, axis, low, high, octave) for octave in (0, -1))
    if values is not None:
        off = [np.square(g.fake(values) - values, dtype=np.float64).mean() for g in (above, below)]
    else:
        off = [largest_error(params, g, non_negative=non_negative) for g in (above, below)]
    return above if off[0] <= off[1] else below


def _kept_axis(params: QParams, spec: QSpec) -> int | None:
    """The axis that the new scales run along."""
    if params.block and not spec.blocks:
        # Blocks of a matrix lie within a channel: the other axis counts channels.
        flat = params.scale.ndim == 2 and spec.per_channel
        return 1 - params.axis % 2 if flat and params.axis is not None else None
    if params.axis is None or (not params.block and not spec.per_channel):
        return None
    return params.axis


def _covered(
    params: QParams, axis: int | None, values: Array | None, non_negative: bool
) -> tuple[Array, Array]:
    """The ends of the range to cover, one pair per new scale; zero is always within."""
    if values is None or (params.block and axis == params.axis):
        low, high = params.range
        if non_negative:
            low = np.maximum(low, 0)
        if axis is None:
            low, high = low.min(), high.max()
    else:
        over = None if axis is None else tuple(i for i in range(values.ndim) if i != axis)
        low = values.min(axis=over, initial=0.0)
        high = values.max(axis=over, initial=0.0)
    return np.asarray(low, np.float64), np.asarray(high, np.float64)


def _grid(
    params: QParams,
    kind: QType,
    spec: QSpec,
    axis: int | None,
    low: Array,
    high: Array,
    octave: int | None,
) -> QParams:
    """The grid that covers low..high; an `octave` counts from the next power of two above."""
    lo, hi = spec.codes(kind)
    block = params.block if spec.blocks else 0
    if spec.symmetric:
        scale = np.maximum(high / hi, low / lo if lo else 0.0)
    else:
        scale = (high - low) / (hi - lo)
    # A channel of zeros takes a scale of the old grid.
    scale = np.where(scale > 0, scale, params.scale.max())
    if octave is not None:
        # A scale that exceeds a power of two by a rounding error is that power.
        scale = 2.0 ** (np.ceil(np.log2(scale) - 1e-6) + octave)
    zero = np.zeros(scale.shape, np.int64)
    if not spec.symmetric:
        zero = np.clip(np.rint(lo - low / scale), lo, hi).astype(np.int64)
    return params.with_(
        qtype=kind, scale=scale, zero_point=zero, axis=axis, block=block, lo=lo, hi=hi
    )


def lost_clamp(
    old: QParams, new: QParams, *, non_negative: bool = False
) -> tuple[float, float] | None:
    """The range the old grid clamped to, if the new one reaches far beyond an end of it.

    Far means more than twice as far from zero: a Relu in the form of a zero point is always that,
    the next power of two never is. Channels with different ends have no end in common.
    """
    (low, high), (least, most) = old.range, new.range
    below = not non_negative and not np.ptp(low) and np.abs(least).max() > 2 * np.abs(low).max()
    above = not np.ptp(high) and np.abs(most).max() > 2 * np.abs(high).max()
    if below and not above and not np.any(low):
        return 0.0, np.inf
    return (float(low.min()), float(high.max())) if below or above else None


# -- how far apart ----------------------------------------------------------------------------


def largest_error(
    old: QParams, new: QParams, *, values: Array | None = None, non_negative: bool = False
) -> float:
    """Largest difference between the two grids, as a share of the range of the old one.

    Of a constant: over its values. Else over every input within the old range. Between two jumps of
    one grid its result is constant and that of the other only rises, so that they are furthest
    apart at an end: the jumps of the grid with fewer codes suffice, and the ends of the range.
    """
    if values is not None:
        span, grid = largest(cut(values)), new.fake(values)
        worst = largest(grid[at] - values[at] for at in blocks(values.shape))
        return worst / span if span else 0.0
    worst = 0.0
    for before, after in _channels(old, new):
        low, high = (float(end) for end in before.range)
        low = max(low, 0.0) if non_negative else low
        points = _jumps(min(before, after, key=_code_count))
        points = np.clip(points, np.float32(low), np.float32(high))
        off = np.abs(after.fake(points).astype(np.float64) - before.fake(points)).max()
        worst = max(worst, float(off) / (high - low))
    return worst


def clamp_error(
    old: QParams,
    new: QParams,
    *,
    non_negative: bool = False,
    clamp: tuple[float, float] | None = None,
) -> float:
    """Largest difference between the two grids beyond the old range, as a share of that range.

    `clamp` is the range that the new one's input is cut to first. The old result stays at its end
    there and the new one only moves away from it, so the point furthest out suffices.
    """
    worst = 0.0
    for before, after in _channels(old, new):
        low, high = (float(end) for end in before.range)
        far = 2 * np.abs([*before.range, *after.range]).max()
        points = np.array([0.0 if non_negative else -far, far], np.float32)
        cut = points if clamp is None else np.clip(points, *np.array(clamp, np.float32))
        off = np.abs(after.fake(cut).astype(np.float64) - before.fake(points)).max()
        worst = max(worst, float(off) / (high - low))
    return worst


def _jumps(params: QParams) -> Array:
    """Both infinities, and the inputs around those where a grid jumps to its next value.

    With float32, x/s is a half for x up to 1.5 floats beside the exact half, so the jump is within
    two of them.
    """
    assert params.lo is not None and params.hi is not None
    steps = np.arange(params.lo, params.hi) - params.zero_point
    ties = ((steps + 0.5) * float(params.scale)).astype(np.float32)
    inf = np.float32(np.inf)
    near = [np.array([-inf, inf]), ties]
    for end in near[0]:
        near.append(np.nextafter(ties, end))
        near.append(np.nextafter(near[-1], end))
    return np.concatenate(near)


def _code_count(params: QParams) -> int:
    assert params.lo is not None and params.hi is not None
    return params.hi - params.lo


def _channels(old: QParams, new: QParams) -> Iterator[tuple[QParams, QParams]]:
    """The two grids, channel by channel."""
    many = next((p.scale.size for p in (old, new) if p.axis is not None), 1)
    for at in range(many):
        yield _channel(old, at), _channel(new, at)


def _channel(params: QParams, at: int) -> QParams:
    """The grid of scale number `at`."""
    if params.axis is None:
        return params
    scale, zero_point = params.scale.flat[at], params.zero_point.flat[at]
    return params.with_(scale=scale, zero_point=zero_point, axis=None, block=0)
