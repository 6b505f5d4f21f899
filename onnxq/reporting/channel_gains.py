r"""Whether a tensor differs from its twin by one factor per channel, and by how much otherwise.

SmoothQuant and equalization divide a tensor by a factor per channel and multiply the next layer by
it: b_c = g_c a_c, with the same name and the same result of the network. Compared value by value,
such a tensor looks wrong. With the sums over all samples

    g_c = \sum a b / \sum a^2        the best factor of channel c
    r   = \sum_c (\sum b^2 - g_c \sum a b)      what no factor explains

the tensor counts as rescaled if factors differ from 1 and r is far below sum (a - b)^2. Its error
is then r, beside the signal sum b^2.
"""

from __future__ import annotations

import math

import numpy as np

from onnxq.quant.qparams import Array

_FAR_LESS = 0.1
"""The share of the squared difference that factors must leave."""
_OTHER = 0.02
"""A factor this far from 1 is none of rounding's."""
_MOST_CHANNELS = 1 << 14


class ChannelGains:
    """Sums for each channel of one tensor, over axis 1 and over the last axis."""

    def __init__(self) -> None:
        self._sums: dict[int, Array] = {}
        self._plain = 0.0

    def add(self, a: Array, b: Array) -> None:
        """Take in both values of one sample."""
        if a.shape != b.shape or a.ndim < 2 or not a.size:
            return
        x, y = (np.asarray(each, np.float32) for each in (a, b))
        self._plain += float(np.square(x - y, dtype=np.float64).sum())
        for axis in {1, a.ndim - 1}:
            if not 1 < a.shape[axis] <= _MOST_CHANNELS:
                continue
            rest = tuple(i for i in range(a.ndim) if i != axis)
            sums = np.stack([np.sum(p * q, rest, np.float64) for p, q in ((x, x), (x, y), (y, y))])
            before = self._sums.get(axis)
            if before is None or before.shape == sums.shape:
                self._sums[axis] = sums if before is None else before + sums

    @property
    def sqnr(self) -> float | None:
        """The signal-to-noise ratio beside the factors, in dB; None if there are none."""
        found: list[tuple[float, float]] = []
        for aa, ab, bb in self._sums.values():
            with np.errstate(divide="ignore", invalid="ignore"):
                gains = np.where(aa > 0, ab / aa, 1.0)
            left = float(np.maximum(bb - gains * ab, 0.0).sum())
            if np.abs(gains - 1).max() > _OTHER and left < _FAR_LESS * self._plain:
                found.append((left, float(bb.sum())))
        if not found:
            return None
        noise, signal = min(found)
        return 10 * math.log10(signal / noise) if noise and signal else math.inf


__all__ = ["ChannelGains"]
