"""The grid of a weight whose scale is lost, found from its values alone.

An exporter that folds constants leaves w = fl(k * s) with integers k, in float32, one s per tensor
or per channel. The grid is recovered only if it can be proven:

    every value is fl(k * s) to the last bit, for one float32 s and integers |k| <= 128

The largest such s is wanted: any s / n gives the same values. So the largest magnitude is tried as
code 1, 2, ... 128. A value that lies on no grid matches a multiple of a given s to the last bit
with a probability below 127 * 2^-22, and at most 128 codes are tried: if four magnitudes agree with
the first, chance is out of the question (10^-16). Fewer prove nothing: a weight of two values lies
on many grids.
A weight that was changed after it was rounded (multiplied by a normalisation's gain, in float32)
lies next to the grid, not on it, and proves nothing.
"""

from __future__ import annotations

import numpy as np

from onnxq.quant.blockwise import keeps
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.quant.qtypes import holding

_MOST_CODE = 128
_PROOF = 4
"""The number of magnitudes besides the first of each channel that must be on the grid."""


def recovered(tensor: str, weight: Array, axis: int) -> QParams | None:
    """The grid that `weight` lies on, per tensor or along `axis`; None if it proves none."""
    for along in (None, axis):
        rows = weight.reshape(1, -1)
        if along is not None:
            rows = np.moveaxis(weight, along, 0).reshape(weight.shape[along], -1)
        scale = _scales(rows)
        if scale is None:
            continue
        codes = np.rint(rows / scale[:, None])
        least, most = int(codes.min()), int(codes.max())
        kind = holding(min(-1, least), max(1, most, -least - 1))
        if kind is None or kind.bits > 8:
            continue
        params = QParams(
            tensor=tensor,
            qtype=kind,
            scale=scale,
            zero_point=np.zeros(scale.shape, np.int64),
            axis=along,
            lo=-kind.hi if least >= -kind.hi else kind.lo,  # symmetric if the values are
            hi=kind.hi,
            role=Role.WEIGHT,
        )
        if keeps(params, weight):
            return params
    return None


def _scales(rows: Array) -> Array | None:
    """One scale for each row; None if a row lies on no grid, or all of them prove too little."""
    scales = np.ones(len(rows), np.float32)  # a row of zeros lies on every grid
    proof = 0
    for index, row in enumerate(rows):
        magnitudes = np.unique(np.abs(row))
        magnitudes = magnitudes[magnitudes > 0]
        if not magnitudes.size:
            continue
        scale = _coarsest(magnitudes) if magnitudes.size <= _MOST_CODE else None
        if scale is None:
            return None
        scales[index] = scale
        proof += magnitudes.size - 1
    return scales if proof >= _PROOF else None


def _coarsest(magnitudes: Array) -> np.float32 | None:
    """The largest scale of which all `magnitudes` (ascending, positive) are multiples."""
    wide = magnitudes.astype(np.float64)
    steps = wide[-1] / np.arange(1, _MOST_CODE + 1)
    codes = np.rint(wide / steps[:, None])
    # Each product and the largest magnitude are rounded once, by half a last place.
    near = np.abs(codes * steps[:, None] - wide) <= wide * 2.0**-22
    for index in np.flatnonzero(near.all(axis=1) & (codes[:, 0] >= 1)):
        exact = _exact(magnitudes, codes[index].astype(np.float32), np.float32(steps[index]))
        if exact is not None:
            return exact
    return None


def _exact(magnitudes: Array, codes: Array, about: np.float32) -> np.float32 | None:
    """The float32 near `about` whose products with `codes` are `magnitudes`, bit for bit."""
    down = up = about
    for _ in range(3):
        for scale in (down, up):
            if np.array_equal(codes * scale, magnitudes):
                return scale
        down, up = np.nextafter(down, np.float32(0)), np.nextafter(up, np.float32(np.inf))
    return None
