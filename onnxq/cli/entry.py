"""The command line. Exit codes: 0 done and proven, 1 not proven, 2 bad usage or bad model.

See `onnxq.process` for those of an interrupt and a closed pipe.
"""

from __future__ import annotations

import io
import sys
from typing import NoReturn

from onnxq import process
from onnxq.cli import failures, paths
from onnxq.cli.commands import app


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line; errors become one message and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    paths.forget()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # names a terminal cannot show must not stop us
    try:
        try:
            process.interruptible()
            code = _run(words)
        finally:
            process.finished()
    except KeyboardInterrupt:
        code = process.INTERRUPTED
    sys.exit(code)


def _run(words: list[str]) -> int:
    """Run a command and report what went wrong; returns the exit code."""
    debug, as_json = "--debug" in words, "--json" in words
    with process.Streams() as streams:
        try:
            # None, or the code of the command's Exit.
            code = app([w for w in words if w != "--debug"], standalone_mode=False) or 0
        except failures.UsageError as error:
            failures.tell_usage(error, as_json)
            code = 2
        except Exception as error:  # a bad model, or a fault of onnxq: never a result
            if process.was_interrupted():
                return process.INTERRUPTED
            if streams.lost_output() is None:
                failures.tell(error, as_json, debug)
            code = 2
        lost = streams.lost_output()
        if lost is not None:
            failures.tell_lost(lost)
            code = 2
    return int(code)
