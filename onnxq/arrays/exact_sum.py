"""Sums of float32 numbers that do not depend on the order of the additions.

A float32 is an integer of 24 bits times a power of two from 2^-149 to 2^104. The sum is kept as an
integer in units of 2^-149, in limbs of 32 bits that each have 31 bits of room for carries:

    x = m * 2^(e - 149),  e = 32 q + r:  limb q gets the lower half of m * 2^r, limb q + 1 the rest

So 2^31 numbers can be added before a carry is needed, and sums of parts are added limb by limb.
Small arrays wait for others: a few numbers take as long as a few thousand.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnxq.arrays.pieces import Array

_LIMBS = 10
_HALF = np.int64((1 << 32) - 1)


_WAITING = 4096
"""Numbers that wait at most."""


class ExactSum:
    """One sum for each element of arrays of a given shape, and the number of arrays added."""

    __slots__ = ("_limbs", "_waiting", "count")

    def __init__(self, size: int, limbs: npt.NDArray[np.int64] | None = None, count: int = 0):
        self._limbs = np.zeros((_LIMBS, size), np.int64) if limbs is None else limbs
        if self._limbs.shape != (_LIMBS, size) or self._limbs.dtype != np.int64 or count < 0:
            raise ValueError(
                f"{self._limbs.dtype} limbs of shape {self._limbs.shape} are not a sum"
            )
        self._waiting: list[Array] = []
        self.count = count

    @property
    def limbs(self) -> npt.NDArray[np.int64]:
        """The sums."""
        if self._waiting:
            waiting, self._waiting = np.stack(self._waiting), []
            self._settle(waiting)
        return self._limbs

    def add(self, values: Array) -> None:
        """Add an array of finite numbers, rounded to float32."""
        self._waiting.append(np.array(values, np.float32).reshape(-1))
        self.count += 1
        if len(self._waiting) * self._limbs.shape[1] >= _WAITING:
            _ = self.limbs

    def _settle(self, values: Array) -> None:
        """Add float32 numbers, one array a row."""
        bits = values.view(np.int32).astype(np.int64)
        exponent = (bits >> 23) & 0xFF
        mantissa = (bits & 0x7FFFFF) | np.where(exponent > 0, 1 << 23, 0)
        exponent = np.maximum(exponent - 1, 0)
        shifted = mantissa << (exponent & 31)
        sign = np.where(bits < 0, -1, 1)
        limb, every = exponent >> 5, np.arange(bits.shape[1])
        if len(bits) == 1:
            self._limbs[limb[0], every] += (sign * (shifted & _HALF))[0]
            self._limbs[limb[0] + 1, every] += (sign * (shifted >> 32))[0]
        else:
            np.add.at(self._limbs, (limb, every), sign * (shifted & _HALF))
            np.add.at(self._limbs, (limb + 1, every), sign * (shifted >> 32))

    def merge(self, other: ExactSum) -> None:
        """Add what another one has added."""
        self._limbs = self.limbs + other.limbs
        self.count += other.count

    def mean(self) -> Array:
        """The average, as float64: the exact sum, rounded once."""
        totals = [0] * self.limbs.shape[1]
        for limb in self.limbs[::-1].tolist():
            totals = [(total << 32) + part for total, part in zip(totals, limb, strict=True)]
        # The quotient of two integers is rounded correctly by Python, whatever their size.
        whole = max(self.count, 1) << 149
        return np.array([total / whole for total in totals], np.float64)
