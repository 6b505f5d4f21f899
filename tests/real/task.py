"""What a real network is fed with, and how one sees whether it still does its work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Feed: TypeAlias = dict[str, np.ndarray]
Run: TypeAlias = Callable[[Feed], dict[str, np.ndarray]]


class Missing(Exception):
    """Data that this machine cannot make, and why."""


@dataclass(frozen=True)
class Figure:
    """A number that the network is used for, as a test on data that was not calibrated with.

    Either answers (each right or wrong: at most `lost` fewer may be right) or, with `within`,
    values that may not move by more than that.
    """

    what: str
    values: Callable[[Run], Sequence[float]]
    lost: int = 0
    within: float | None = None

    def judge(self, before: Sequence[float], after: Sequence[float]) -> tuple[str, str, bool]:
        """The figure of the float network, that of the quantized one, and whether it is kept."""
        a, b = np.asarray(before, np.float64), np.asarray(after, np.float64)
        if self.within is None:
            kept = bool(b.sum() >= a.sum() - self.lost)
            return f"{a.sum():.0f} of {a.size}", f"{b.sum():.0f} of {b.size}", kept
        moved = float(np.abs(a - b).max())
        return (
            f"{a.mean():.3f}",
            f"{b.mean():.3f} (largest change {moved:.3f})",
            moved <= self.within,
        )


@dataclass(frozen=True)
class Task:
    """Data for a network, and its figure if there is one."""

    data: str
    """What the data is, in a few words."""
    samples: Callable[[Run], Sequence[Feed]]
    """The data to calibrate with; gets the float network, for those that read their own state."""
    figure: Figure | None = None
    compared: Sequence[Feed] = ()
    """Further data to compare sessions with, where few samples say little."""
