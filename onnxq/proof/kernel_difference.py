"""How far one kernel is off by itself, before its result is rounded.

A kernel computes x and rounds it to a code k. If x is known from elsewhere, in steps and clamped to
the codes that the grid has, then an exact kernel has |k - x| <= 1/2. One that computes x + d
instead has |k - x| <= 1/2 + |d|, and among many values some are nearly that far. So

    deviation = max(|k - x|) - 1/2    (at least 0)

is the part of the error that rounding does not explain. A value halfway between two codes may
become either, and its code differs by a whole step: the deviation is then the 1e-6 that decided. A
scale that is 2 % off, a zero point off by one or a lost bias shift the values by a good part of a
step, or by many.

Values that should lie on a grid are codes only if they do: how far they are from the nearest code
counts as well. (Rounding with a scale that is 2 % off leaves values within 0.51 steps, but off the
grid.)

Outputs that are not rounded are compared as such: the deviation is max |a - b| / max |a|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from onnxq.quant.qparams import Array


@dataclass(frozen=True)
class KernelDiff:
    """The difference of one kernel over all samples."""

    name: str
    """The tensor it makes."""
    op: str
    node: str
    """What computes the tensor: operator and name."""
    unit: Literal["steps", "relative", "share"]
    deviation: float
    """The difference before rounding: see above."""
    limit: float
    moved: float
    """Share of values that are rounded to another code, or differ by more than 1e-6."""
    count: int
    ends: bool = False
    """Whether the ends of two ranges were compared, not values."""

    @property
    def severity(self) -> float:
        """The deviation as a multiple of its limit; above 1 it fails."""
        return self.deviation / self.limit

    @property
    def passed(self) -> bool:
        """Whether the kernel computes what it should."""
        return self.severity <= 1.0

    def to_json(self) -> dict[str, Any]:
        """A JSON object; infinities become None."""
        known = math.isfinite(self.deviation)
        return vars(self) | {"deviation": self.deviation if known else None, "passed": self.passed}

    def __str__(self) -> str:
        unit = {"steps": "steps", "relative": "of the largest value", "share": "of the values"}
        return f"{self.deviation:.2g} {unit[self.unit]}"


class RunningKernel:
    """The difference of one kernel, gathered sample by sample."""

    def __init__(self, name: str, op: str, node: str, limit: float) -> None:
        self._about = name, op, node
        self._limit = limit
        self._deviation = 0.0
        self._moved = self._count = 0

    def add(self, codes: Array, before: Array) -> None:
        """Add codes, and what should have been rounded to them in steps."""
        if codes.shape != before.shape:
            self._deviation = math.inf
            return
        finite = np.isfinite(before)
        if not finite.all():  # no code is right or wrong there
            codes, before = codes[finite], before[finite]
        if codes.size:
            nearest = np.rint(codes)
            unexplained = float(np.abs(codes - before).max()) - 0.5
            off_grid = float(np.abs(codes - nearest).max())
            self._deviation = max(self._deviation, unexplained, off_grid)
            self._moved += int(np.count_nonzero(np.rint(before) != nearest))
            self._count += codes.size

    def result(self) -> KernelDiff:
        """The difference over all samples added so far."""
        moved = self._moved / self._count if self._count else 0.0
        return KernelDiff(*self._about, "steps", self._deviation, self._limit, moved, self._count)
