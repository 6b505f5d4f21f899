"""CPU time of jobs in one process, measured in turns so that a busy machine slows all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def cpu_seconds(job: Callable[[], Any]) -> float:
    """CPU time of this process, all threads, for one call; the garbage collector stays on."""
    gc.collect()  # what earlier jobs left is not this one's work
    start = time.process_time()
    result = job()
    seconds = time.process_time() - start
    del result
    return seconds


def in_turns(jobs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """CPU seconds of each job: one round unmeasured, then `repeats` rounds of all of them."""
    for job in jobs.values():
        job()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            seconds[name].append(cpu_seconds(job))
    return seconds


def median_ratio(above: list[float], below: list[float]) -> float:
    """The median of the ratios round by round: each pair ran under the same load."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))
