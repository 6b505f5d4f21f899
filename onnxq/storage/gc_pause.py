"""Python's garbage collector held back while a graph is built or rewritten.

Reading or rewriting a large model makes hundreds of thousands of objects that all stay. The
collector scans them again and again in vain, for a quarter of the total time. So they go to its
oldest generation at once, where they would end up after two scans. What that hides from its own
count is counted here: a process that rewrites model after model gets a full collection whenever
`MOST_OBJECTS` have accumulated, some 200 MB. It looks at all objects that are alive, so it waits
until as many have been made as it left the last time: then what it costs grows with what is made,
however large the models are.
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
            if not gc.get_freeze_count():  # what others have frozen must stay so
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
    """The number of objects made within pauses since the last full collection."""

    objects = 0
    left = 0
    """The number of objects alive after it."""


def _count_anew(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        _Made.objects = 0


gc.callbacks.append(_count_anew)
