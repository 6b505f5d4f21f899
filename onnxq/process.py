"""The process of the command line: how it handles signals and broken streams.

This applies only if the process *is* the command line: a program that imports onnxq, or calls
`cli.main`, keeps its own handlers.

* Ctrl-C ends it with 130 and without a traceback. While a command runs it is a KeyboardInterrupt,
  so that half-written files are cleaned up. Before that there is nothing to clean up, and it ends
  at once: the imports take half a second, more than many commands. This module is therefore the
  first that `import onnxq` runs, and imports next to nothing itself. Python's own start, some
  hundredths of a second, is out of reach.
* A closed pipe ends it like other programs: quietly, by SIGPIPE, which shells report as 141.
* A standard stream that is closed becomes the null device. Otherwise the next opened file would
take its number, and whatever a library prints would go into that file.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # as in typing, which would take its time
if TYPE_CHECKING:
    from typing import Any, NoReturn, TextIO

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 + SIGINT."""


def _is_command_line() -> bool:
    """Whether this process was started as `onnxq` or `python -m onnxq`."""
    started = next(iter(getattr(sys, "argv", ())), "")
    if started != "-m":
        return os.path.basename(started) in ("onnxq", "onnxq.exe")
    words = sys.orig_argv
    return "-m" in words[:-1] and words[words.index("-m") + 1] in ("onnxq", "onnxq.cli")


IS_COMMAND_LINE = _is_command_line()
_interrupted = False


def was_interrupted() -> bool:
    """Whether Ctrl-C was pressed, even if a library swallowed the KeyboardInterrupt."""
    return _interrupted


def _end(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)


def _interrupt(*_: object) -> NoReturn:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def interruptible() -> None:
    """Let Ctrl-C raise KeyboardInterrupt."""
    _on_interrupt(_interrupt)


def _again(lost: Any) -> None:
    """Interrupt again if code that cannot raise (`__del__`) was interrupted."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    else:
        sys.__unraisablehook__(lost)


def finished() -> None:
    """Ignore Ctrl-C from now on: everything is written, and the interpreter is about to end."""
    _on_interrupt(signal.SIG_IGN)


def _on_interrupt(handler: Any) -> None:
    # Started with SIGINT ignored (in the background, by a script), it stays ignored.
    if IS_COMMAND_LINE and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)


def _start() -> None:
    _on_interrupt(_end)
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _interrupt)
        sys.unraisablehook = _again


class _Stream:
    """A standard stream that remembers why writing failed."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except OSError as error:
            self.lost = error
            raise

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError as error:
            self.lost = error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Streams:
    """Standard output and standard error while a command runs."""

    def __init__(self) -> None:
        self._out, self._err = _Stream(sys.stdout), _Stream(sys.stderr)

    def __enter__(self) -> Streams:
        sys.stdout, sys.stderr = self._out, self._err
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout, sys.stderr = self._out.stream, self._err.stream
        for made in (self._out, self._err):
            if made.lost is not None and IS_COMMAND_LINE:
                # Else the interpreter would write the rest at its end, and complain.
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, made.stream.fileno())
                os.close(null)

    def lost_output(self) -> str | None:
        """Why standard output cannot be written, or None."""
        try:
            self._out.flush()
            why = self._out.lost
        except OSError as error:
            why = error
        return None if why is None else why.strerror or str(why)


if IS_COMMAND_LINE:
    _start()
