"""Runs timed by the wall clock, each with the time it waited while other programs had the CPU.

On a busy machine the system takes the CPU away for milliseconds. A run that is shorter than its
share of the CPU is seldom hit, a longer one nearly always, so medians of the wall clock would make
slow models look slower still. A run counts as interrupted if the system took the CPU from the
process (an involuntary context switch) and the calling thread did not run for a noticeable part of
the time. Where the system does not count switches, no run is.

If an operator has several threads, the caller may wait for the others actively: it is then
interrupted unnoticed, and only the spread of the latencies shows it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NOTICEABLE = 0.02
"""Part of a run that may be spent waiting."""


class Run(NamedTuple):
    """One run."""

    seconds: float
    """By the wall clock."""
    waited: float
    """Seconds in which the calling thread did not run, 0 if the system took nothing away."""

    @property
    def interrupted(self) -> bool:
        """Whether other programs made the run noticeably longer."""
        return self.waited > NOTICEABLE * self.seconds


@dataclass(frozen=True)
class Turn:
    """The latency of a model in one round."""

    seconds: float
    clean: bool
    """Whether it is that of runs that were not interrupted."""

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Turn:
        """The median of the runs that were not interrupted; if all were, the shortest."""
        clean = [run.seconds for run in runs if not run.interrupted]
        if clean:
            return cls(statistics.median(clean), True)
        return cls(min(run.seconds for run in runs), False)


def timed(run: Callable[[], object], count: int) -> list[Run]:
    """Time `count` runs."""
    switches = _switch_counter()
    wall, own = time.perf_counter, time.thread_time
    found = []
    for _ in range(count):
        switched, used, before = switches(), own(), wall()
        run()
        seconds = wall() - before
        waited = seconds - (own() - used) if switches() > switched else 0.0
        found.append(Run(seconds, max(waited, 0.0)))
    return found


def _switch_counter() -> Callable[[], int]:
    """What counts how often the system took the CPU from this process."""
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # Windows
        return lambda: 0
    return lambda: getrusage(RUSAGE_SELF).ru_nivcsw
