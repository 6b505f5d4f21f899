"""What a command is doing, on a line that comes and goes: only on a terminal, and if it takes long.

Commands that are over at once stay quiet. After `DELAY` seconds the line appears, and every later
stage changes it; in the end it is wiped out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from threading import Lock, Timer

from onnxq.views import screen

DELAY = 2.0
"""Seconds of work without a word."""


class _Line:
    """A status line that a timer shows."""

    def __init__(self, console: screen.Screen) -> None:
        self._status = console.status("starting")
        self._lock = Lock()  # the timer may fire while the command ends
        self._ended = False
        self._timer = Timer(DELAY, self._show)
        self._timer.daemon = True
        self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if not self._ended:
                self._status.start()

    def tell(self, text: str) -> None:
        self._status.update(screen.shown(text))  # a string would be read as markup

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            self._status.stop()


@contextlib.contextmanager
def progress_line(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A status line on a terminal; silence elsewhere, and for programs (`quiet`)."""
    console = screen.console(stderr=True)
    # Colours can be forced into a file or a log; a line that comes and goes must not be.
    if quiet or not console.is_terminal or not console.file.isatty():
        yield lambda _: None
        return
    line = _Line(console)
    try:
        yield line.tell
    finally:
        line.end()


__all__ = ["DELAY", "progress_line"]
