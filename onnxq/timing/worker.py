"""The child's side of a measurement: one model, its session and its inputs.

The session is the one users ship: onnxruntime's defaults, with the number of threads they choose.
One setting differs: threads that wait for more work stop doing so when a run ends
(`session.force_spinning_stop`), since the next turn belongs to another model.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onnxq.errors import VerifyError
from onnxq.running.ort_crashes import check_survives
from onnxq.running.ort_errors import ort_errors, reason
from onnxq.running.ort_session import new_options, start
from onnxq.running.ort_tensors import TensorSpec, is_native, to_ort
from onnxq.running.samples import Feed, fill_dims
from onnxq.running.sessions import Session, open_model
from onnxq.timing.child import serve
from onnxq.timing.profile import read_profile
from onnxq.timing.stopwatch import Run, Turn, timed
from onnxq.timing.survey import Survey, rename_nodes, survey

_PROFILED_SECONDS = 0.5
_MOST_PROFILED = 20
_CONFIG = {"session.intra_op.allow_spinning": "1", "session.force_spinning_stop": "1"}


class Worker:
    """Answers the requests of the parent, in the order of the methods."""

    def __init__(self) -> None:
        self._path = Path()
        self._threads = 1
        self._session: Session | None = None
        self._feeds: list[Feed] = []
        self._runs: list[Callable[[], object]] = []

    def open(self, path: str, threads: int) -> tuple[TensorSpec, ...]:
        """Load the model and return its inputs."""
        self._path, self._threads = Path(path), threads
        opened = open_model(path)
        check_survives(opened.proto, opened.label, optimized=True)
        self._session = Session(start(path, opened.label, self._options()), "shipped")
        return self._session.inputs

    def _options(self, **config: str) -> Any:
        return new_options("", {**_CONFIG, **config}, self._threads)

    def fill(self, inputs: tuple[TensorSpec, ...], seed: int) -> tuple[TensorSpec, ...]:
        """The inputs with sizes that the model runs with."""
        assert self._session is not None
        self._session.inputs = inputs
        return fill_dims(self._session, seed)

    def take(self, feeds: list[Feed]) -> None:
        """Take samples, and run each once."""
        assert self._session is not None
        self._feeds = feeds
        self._runs = [_runner(self._session._session, self._session, feed) for feed in feeds]
        with _told(self._path):
            for run in self._runs:
                run()

    def warm(self, seconds: float) -> float:
        """Run the model for a while; returns its latency, in seconds."""
        gc.collect()
        gc.freeze()
        gc.disable()
        found: list[Run] = []
        begin = time.perf_counter()
        while len(found) < 3 or time.perf_counter() - begin < seconds:
            found += self._timed(self._runs[len(found) % len(self._runs)], 1)
        return Turn.of(found).seconds

    def turn(self, number: int, runs: int) -> list[Run]:
        """One untimed run on sample `number`, which may be any, then timed ones."""
        run = self._runs[number % len(self._runs)]
        return self._timed(run, runs + 1)[1:]

    def _timed(self, run: Callable[[], object], runs: int) -> list[Run]:
        with _told(self._path):
            return timed(run, runs)

    def survey(self, folder: str) -> Survey:
        """Profile the model; temporary files go to `folder`."""
        gc.enable()
        self._session, self._runs = None, []  # one session in memory is enough
        optimized = Path(folder) / "optimized.onnx"
        opened = open_model(self._path)
        names = rename_nodes(opened.proto)
        options = self._options(
            **{
                "session.model_external_initializers_file_folder_path": str(opened.folder),
                # The graph without its weights is all that is wanted, and fits any protobuf.
                "session.optimized_model_external_initializers_file_name": "weights.data",
                "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
            }
        )
        options.optimized_model_filepath = str(optimized)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        made = Session(start(opened.proto.SerializeToString(), opened.label, options), "shipped")
        run = _runner(made._session, made, self._feeds[0])
        with _told(self._path):
            run()
            begin = time.perf_counter()
            for _ in range(_MOST_PROFILED):
                run()
                if time.perf_counter() - begin > _PROFILED_SECONDS:
                    break
        profile = Path(made._session.end_profiling())
        return survey(
            self._path, optimized, read_profile(profile.read_text(encoding="utf-8")), names
        )


def _runner(session: Any, specs: Session, feed: Feed) -> Callable[[], object]:
    """What runs the session on a sample, as users call it."""
    if all(map(is_native, (*specs.inputs, *specs.outputs))):
        return lambda: session.run(None, feed)
    given = {i.name: to_ort(i, feed[i.name]) for i in specs.inputs}
    names = [o.name for o in specs.outputs]
    return lambda: session.run_with_ort_values(names, given)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except ort_errors() as error:
        raise VerifyError(
            f"onnxruntime could not run '{path}': {reason(error)}",
            fix="check the shapes and values of the inputs, or give real ones with --data",
        ) from error


def main() -> None:
    """Serve the parent on the standard streams; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(ImportError, OSError, ValueError):  # no core file in the user's folder
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    serve(Worker(), sys.stdin.buffer, answers)
