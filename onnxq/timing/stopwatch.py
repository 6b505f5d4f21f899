"""Runs timed by the wall clock, each with the time it waited while other programs had the CPU.

On a busy machine the system takes the CPU away for milliseconds. A run that is shorter than its
share of the CPU is seldom hit, a longer one nearly always, so medians of the wall clock would make
slow models look slower still. A run counts as interrupted if it waited for a noticeable part of its
time. How long it waited is

* for a process of one thread: the time in which the thread did not run, if the system took the CPU
  from the process at all (an involuntary context switch);
* for several threads, on Linux: the longest time that one of them was ready and had no CPU, since
  the others wait for it, and may do so actively. Elsewhere as for one thread, which misses that.

Linux counts the wait of a thread when it ends: w nanoseconds seen at time t belong to the runs
between t - w and t, of which there may be several, so waits are assigned when all runs are done.

Where the system does not count switches, no run is interrupted.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_TASKS = "/proc/self/task"
_LAST_WAIT = 0.02

NOTICEABLE = 0.02
"""Part of a run that may be spent waiting."""

UNAVOIDABLE = 1e-4
"""Seconds that may be spent waiting: threads that are woken up wait for microseconds."""


class Run(NamedTuple):
    """One run."""

    seconds: float
    """By the wall clock."""
    waited: float
    """Seconds without the CPU that other programs took."""

    @property
    def interrupted(self) -> bool:
        """Whether other programs made the run noticeably longer."""
        return self.waited > max(NOTICEABLE * self.seconds, UNAVOIDABLE)


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
    with contextlib.ExitStack() as stack:
        delays = _delay_counter(stack)
        return _timed_alone(run, count) if delays is None else _timed_threads(run, count, delays)


def _timed_alone(run: Callable[[], object], count: int) -> list[Run]:
    switches, wall, own = _switch_counter(), time.perf_counter, time.thread_time
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


def _timed_threads(
    run: Callable[[], object], count: int, delays: Callable[[], list[int]]
) -> list[Run]:
    wall = time.perf_counter
    spans = []
    seen = [(wall(), delays())]
    for _ in range(count):
        before = wall()
        run()
        spans.append((before, wall()))
        seen.append((spans[-1][1], delays()))
    time.sleep(_LAST_WAIT)  # a thread that is still waiting has not been counted
    seen.append((wall(), delays()))
    waits = _assigned(spans, seen)
    return [Run(end - begin, wait) for (begin, end), wait in zip(spans, waits, strict=True)]


def _assigned(spans: list[tuple[float, float]], seen: list[tuple[float, list[int]]]) -> list[float]:
    """The longest wait of a thread in each span, given times with the counts of all threads."""
    waits = [0.0] * len(spans)
    for (_, earlier), (end, later) in itertools.pairwise(seen):
        for before, after in zip(earlier, later, strict=True):
            begin = end - (after - before) * 1e-9
            at = bisect.bisect_left(spans, end, key=lambda span: span[0]) - 1
            while at >= 0 and spans[at][1] > begin:  # the waits of a thread do not overlap
                waits[at] = max(waits[at], min(end, spans[at][1]) - max(begin, spans[at][0]))
                at -= 1
    return waits


def _delay_counter(stack: contextlib.ExitStack) -> Callable[[], list[int]] | None:
    """What gives the waits of all threads so far, in nanoseconds, as Linux counts them.

    None if there is only one thread, or no count.
    """
    try:
        tasks = os.listdir(_TASKS)
        if len(tasks) < 2:
            return None
        files = []
        for task in tasks:
            files.append(os.open(f"{_TASKS}/{task}/schedstat", os.O_RDONLY))
            stack.callback(os.close, files[-1])
    except OSError:
        return None
    last = [0] * len(files)

    def counts() -> list[int]:
        for at, file in enumerate(files):
            with contextlib.suppress(ProcessLookupError):  # a thread that has ended waits no more
                # Time on the CPU, time ready without it, number of time slices.
                last[at] = int(os.pread(file, 128, 0).split()[1])
        return list(last)

    return counts
