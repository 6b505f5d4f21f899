"""Locks that show whether a process is alive: the system releases a lock when its process ends.

While files of a folder are moved into place, the folder itself is locked: two processes never mix
their sets, and the holder of the lock knows that half-done moves belong to a dead process. A file
that is still being written is locked on its own, since that may take long.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from onnxq.errors import SaveError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

WAIT = 60.0
"""Seconds to wait for a process that is moving files, which takes milliseconds."""


def try_lock(handle: int) -> bool | None:
    """Lock an open file. False: another process holds the lock; None: this disk has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder. Yields False if the disk has no locks."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # files can be created there, but not listed: no one finds ours
        yield False
        return
    try:
        end = time.monotonic() + WAIT
        while (held := try_lock(handle)) is False:
            if time.monotonic() > end:
                raise SaveError(
                    f"{folder}: another process has been replacing files in this folder "
                    f"for {WAIT:.0f} s",
                    fix="wait for it, or stop it; the next command completes what it leaves",
                )
            time.sleep(0.01)
        yield held is True
    finally:
        os.close(handle)
