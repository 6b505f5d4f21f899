"""A process of its own for one model, since onnxruntime may end the process that it runs in.

Parent and child speak over the child's standard streams, one pickled message at a time: a request
is the name of a method of `worker.Worker` and its arguments, the answer its result or its error.
What libraries print goes to a log, whose end is shown if the child dies. The child searches
modules where the parent does, so both run the same code.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from onnxq.disk.scratch import scratch_errors
from onnxq.errors import OnnxqError, VerifyError

WORKER = "onnxq.timing.worker"
"""The module whose `main` the child runs."""

_START = (
    "import sys; sys.path[:] = sys.argv[2:]; import importlib; "
    "importlib.import_module(sys.argv[1]).main()"
)
_LONGEST = 300
_ACTIONS = {
    "open": "loading the model",
    "fill": "choosing the sizes of its inputs",
    "take": "running the model",
    "warm": "running the model",
    "turn": "running the model",
    "survey": "profiling the model",
}


class Died(Exception):
    """The child ended instead of answering; the message says how."""


class Child:
    """A child process. Use it in a `with`: it is killed at the end."""

    def __init__(self, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-c", _START, WORKER, *sys.path]
        with scratch_errors():
            told = log.open("wb")
        with told:
            try:
                self._process = _started(command, told)
            except OSError as error:
                raise VerifyError(
                    f"cannot start a process for a model ({error.strerror or error})",
                    fix="end other programs, or measure fewer models at a time",
                ) from error

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # it keeps nothing that would have to be saved
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:  # a request that was never read
                    continue

    def ask(self, what: str, *arguments: Any) -> Any:
        """The answer to a request; raises the child's OnnxqError, or Died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((what, arguments), self._process.stdin)
            self._process.stdin.flush()
            answered, answer = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as lost:
            self._process.kill()  # without effect on one that is dead
            raise Died(self._ending(_ACTIONS.get(what, what))) from lost
        if answered:
            return answer
        if isinstance(answer, OnnxqError):
            raise answer
        raise AssertionError(f"a fault in the child process:\n{answer}")

    def _ending(self, action: str) -> str:
        """How the process ended, with the last that it said."""
        code = self._process.wait()
        how = f"exit code {code}"
        if code < 0:
            named = {int(s): s.name for s in signal.Signals}
            how = named.get(-code, f"signal {-code}")
        if how == "SIGKILL":
            how += ", perhaps for lack of memory"
        said = " ".join(self._log.read_text("utf-8", "replace").split())
        words = f": {said[-_LONGEST:]}" if said else ""
        return f"onnxruntime ended its process ({how}) while {action}{words}"


def _started(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        # Ctrl-C is for the parent, which ends its children.
        process_group=0 if os.name == "posix" else None,
    )


def serve(worker: object, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until there are no more: the child's side."""
    import traceback

    while True:
        try:
            what, arguments = pickle.load(requests)
        except EOFError:  # the parent is done, or gone
            return
        answer: tuple[bool, Any]
        try:
            answer = True, getattr(worker, what)(*arguments)
        except OnnxqError as error:
            error.__cause__ = None  # onnxruntime's exceptions cannot be pickled
            answer = False, error
        except Exception:
            answer = False, traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()
