"""Python's garbage collector held back while a graph is built or rewritten.

Reading or rewriting a large model makes hundreds of thousands of objects that all stay. The
collector looks through them again and again, in vain, for a quarter of the whole time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """No automatic collection inside; afterwards as before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
