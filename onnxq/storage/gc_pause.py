"""Pauses Python's garbage collector while a graph is built or rewritten.

Reading or rewriting a large model creates hundreds of thousands of objects that all stay alive. The
collector scans them repeatedly in vain, for a quarter of the total time. So they go to its oldest
generation at once, where they would end up after two scans. That hides them from its own count, so
they are counted here: a process that rewrites model after model gets a full collection whenever
`MOST_OBJECTS` have accumulated, some 200 MB. A full collection looks at all live objects, so it
waits until as many have been created as the last one left: its cost then grows with the number of
objects created, however large the models are.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MOST_OBJECTS = 2_000_000


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable automatic collection inside; restore it afterwards."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # objects frozen by others must stay frozen
                _Made.objects += gc.get_count()[0]
                gc.freeze()
                gc.unfreeze()
                if _Made.objects > max(MOST_OBJECTS, _Made.left):
                    gc.collect()
                    gc.freeze()
                    _Made.left = gc.get_freeze_count()
                    gc.unfreeze()
            gc.enable()


class _Made:
    """Counts of objects."""

    objects = 0
    """Created within pauses since the last full collection."""
    left = 0
    """Alive after that collection."""


def _count_anew(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        _Made.objects = 0


gc.callbacks.append(_count_anew)
