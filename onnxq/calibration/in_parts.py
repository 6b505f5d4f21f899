"""Calibration divided among workers: any `concurrent.futures.Executor`.

Each task observes one part of the samples and returns the bytes of its statistics. Parts are merged
exactly, so neither their number nor the order in which they end changes the result.

A worker may die (memory, a lost machine). Its part is run again, up to `MOST_TRIES` times, and the
others are kept. A process pool that lost a worker is lost as a whole, with all parts that waited:
the last try therefore runs one part at a time, and the error names the one that is at fault.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from onnxq.calibration import worker_interrupts
from onnxq.calibration.float_form import float_form
from onnxq.errors import OnnxqError, VerifyError
from onnxq.graph import Model, load
from onnxq.observing.observe import Part, observe
from onnxq.observing.progress_files import ProgressFiles
from onnxq.observing.tensor_statistics import Wanted
from onnxq.running.samples import Data

MOST_TRIES = 3

Workers = Callable[[], AbstractContextManager[Executor]]
"""Opens an executor; called again if one was lost."""


@dataclass(frozen=True)
class Task:
    """What every worker does, whatever its part."""

    source: Path | Model
    """The float model: a path that the worker can read, or the model itself."""
    wanted: Mapping[str, Wanted]
    data: Data
    most: int | None = None
    files: ProgressFiles | None = None
    """Where workers that see the disk of this machine keep what they know."""
    cores: int | None = None
    """Cores for each worker, if it shares them with others; None for all of its machine."""
    single: bool = False
    """Whether a float16 model computes in float32."""


def observe_part(task: Task, part: Part) -> bytes | Exception:
    """The statistics of one part as bytes; an error is returned, not raised.

    So whatever is raised on the way is a fault of the worker or of the connection to it.
    """
    try:
        with worker_interrupts.task():
            model = _float_model(task.source, task.single)
            found = observe(
                model,
                task.wanted,
                task.data,
                part=part,
                most=task.most,
                resume=None if task.files is None else task.files.of(part),
                may_be_empty=True,
                cores=task.cores,
            )
            return found.dumps()
    except OnnxqError as error:
        return error
    except Exception as error:
        error.add_note(traceback.format_exc())
        return error


def _float_model(source: Path | Model, single: bool) -> Model:
    if isinstance(source, Model):
        return float_form(source, single)[0]
    status = source.stat() if source.exists() else None
    version = None if status is None else (status.st_mtime_ns, status.st_size)
    return _loaded(source, single, version)


@functools.lru_cache(maxsize=1)
def _loaded(source: Path, single: bool, version: tuple[int, int] | None) -> Model:
    """A worker takes several parts of one model; `version` tells files of one name apart."""
    return float_form(load(source), single)[0]


def observe_in_parts(
    task: Task,
    parts: Sequence[Part],
    workers: Workers,
    *,
    done: Callable[[Part, bytes], None],
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Run all parts; `done` gets the statistics of each as it ends."""
    tries = dict.fromkeys(parts, 0)
    while tries:
        alone = max(tries.values()) == MOST_TRIES - 1
        for some in [[part] for part in tries] if alone else [list(tries)]:
            with workers() as executor:
                lost = _round(task, some, executor, done)
            for part in some:
                if part not in lost:
                    del tries[part]
            progress(f"calibrating: {len(parts) - len(tries)} of {len(parts)} parts done")
            for part, error in lost.items():
                tries[part] += 1
                if tries[part] == MOST_TRIES:
                    raise VerifyError(
                        f"part {part} of the data was not finished: its worker was lost "
                        f"{MOST_TRIES} times (the last time: {type(error).__name__}: {error})",
                        fix="see whether its machine has enough memory, and use fewer --jobs",
                    ) from error


def _round(
    task: Task, parts: Iterable[Part], executor: Executor, done: Callable[[Part, bytes], None]
) -> dict[Part, BaseException]:
    """Run parts once; those whose worker was lost, and how."""
    futures = {_submitted(executor, task, part): part for part in parts}
    lost: dict[Part, BaseException] = {}
    try:
        for future in as_completed(futures):
            part = futures[future]
            error = BrokenPipeError("cancelled") if future.cancelled() else future.exception()
            if error is not None:
                lost[part] = error
                continue
            found = future.result()
            if isinstance(found, Exception):
                raise found
            done(part, found)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return lost


def _submitted(executor: Executor, task: Task, part: Part) -> Future[bytes | Exception]:
    try:
        return executor.submit(observe_part, task, part)
    except Exception as error:  # the executor broke while parts were still being given to it
        failed: Future[bytes | Exception] = Future()
        failed.set_exception(error)
        return failed


__all__ = ["MOST_TRIES", "Task", "Workers", "observe_in_parts", "observe_part"]
