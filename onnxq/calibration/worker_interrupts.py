"""Lets a worker process that is told to end keep what it knows.

A terminal sends Ctrl-C to all processes of a command, and the parent terminates those that are
left. The first of the two interrupts the task, which saves; the other must not disturb that. A
worker without a task has nothing to save, and ends at once. So does one whose parent is gone: it
interrupts itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator

from onnxq.process import INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_at_work = False
_ending = False


def watch() -> None:
    """Call once in every worker process."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _interrupt(*_: object) -> None:
    global _ending
    if _ending:
        return  # SIG_IGN would do, but Python complains of a signal that came before it was set
    _ending = True
    if _at_work:
        raise KeyboardInterrupt
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def task() -> Iterator[None]:
    """A task that an interrupt reaches; it ends the worker, which would take the next one."""
    global _at_work
    try:
        _at_work = True
        yield
    except KeyboardInterrupt:
        if _ending:
            os._exit(INTERRUPTED)
        raise
    finally:
        _at_work = False


__all__ = ["task", "watch"]
