"""Locks that tell live processes from dead ones: the system lets go of a lock with its process.

While files of a folder are moved into place, the folder itself is locked: two processes never mix
their sets, and whoever holds the lock knows that moves found half done belong to a dead process.
A file that is still being written is locked on its own, since that may take long.
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
"""Seconds to wait for a process that moves files: that takes it milliseconds."""


def try_lock(handle: int) -> bool | None:
    """Lock an open file. False: somebody else has it locked; None: this disk has no locks."""
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
    """Hold the lock of a folder. Gives False where the disk has no locks."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # files may be put there, but not listed: nobody can look for ours
        yield False
        return
    try:
        end = time.monotonic() + WAIT
        while (held := try_lock(handle)) is False:
            if time.monotonic() > end:
                raise SaveError(
                    f"{folder}: another process has been replacing files here for {WAIT:.0f} s",
                    fix="wait for it, or stop it; what it leaves is completed by the next command",
                )
            time.sleep(0.01)
        yield held is True
    finally:
        os.close(handle)
