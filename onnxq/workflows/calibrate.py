"""Runs a float model on data and returns the statistics that ranges are chosen from.

    model -> float form -> places of the backend's quantizers -> tensors to observe
    data  -> samples of a shard -> one process, several, or a cluster -> statistics, merged

Whichever way the samples are divided, the statistics are the same, byte for byte.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.arrays.pictures import Pictures
from onnxq.backend import Backend, chosen_backend
from onnxq.calibration import worker_interrupts
from onnxq.calibration.float_form import float_form
from onnxq.calibration.in_parts import Task, Workers, observe_in_parts
from onnxq.calibration.placing import Placing
from onnxq.calibration.wanted import wanted
from onnxq.errors import LoadError, OptionError
from onnxq.graph import Model, load
from onnxq.observing.observe import Part, check_given, observe
from onnxq.observing.progress_files import ProgressFiles
from onnxq.observing.side_by_side import available_cores
from onnxq.observing.statistics import Statistics, fingerprint
from onnxq.parsing.argument_types import INTEGER, PATH, takes
from onnxq.quant.settings import Settings
from onnxq.running.samples import Data

Progress = Callable[[str], None]

PARTS_PER_WORKER = 2
"""A part is what is lost with a worker; each costs the start of a session."""
_MOST_JOBS = 64
"""Processes that are always allowed, on a machine of any size."""
_PARTS = 8
"""Parts for an executor whose number of workers is not known."""


@takes(
    model=(Model, *PATH),
    backend=(str, Backend),
    shard=(str, Part, None),
    samples=(*INTEGER, None),
    jobs=INTEGER,
    executor=(Executor, None),
    cluster=(str, None),
    resume=(*PATH, None),
    progress=Callable,
    data=(*PATH, Iterable, None),
)
def calibrate(
    model: Model | str | Path,
    data: Data,
    *,
    backend: str | Backend,
    settings: Any = None,
    shard: str | Part | None = None,
    samples: int | None = None,
    jobs: int = 1,
    executor: Executor | None = None,
    cluster: str | None = None,
    resume: str | Path | None = None,
    progress: Progress = lambda _: None,
) -> Statistics:
    """Statistics of the tensors that `backend` wants quantized.

    Args:
        model: the float model; several workers read a path themselves.
        data: typical inputs, as `onnxq.verify` takes them.
        backend: the target, or its name.
        settings: rules for layers (see `onnxq.quant.settings`), which are checked. What is
            observed serves any rules, so it does not depend on them.
        shard: '3/8' takes the third of eight parts of the samples.
        samples: take only so many of the first samples.
        jobs: processes that share the work.
        executor: anything else that runs tasks, instead of `jobs`.
        cluster: the address of a dask scheduler, instead of `jobs`.
        resume: a file for what is known so far. If it exists, the run goes on from there; remove
            it (`ProgressFiles(resume).remove()`) once the result is safe.
        progress: called with what is being done.
    """
    check_given(data)
    if samples is not None and samples < 1:
        raise OptionError(f"there are no {samples} samples", fix="give a number above 0")
    part = Part.parse(shard) if isinstance(shard, str) else shard or Part()
    with _workers(jobs, executor, cluster) as (workers, count):
        progress("reading the model")
        source = model if isinstance(model, Model) else Path(model).absolute()
        target = chosen_backend(backend)
        single = target.in_single_precision  # as quantize, which checks that it is this model
        given = source if isinstance(source, Model) else load(source)
        floats, _ = float_form(given, single=single)
        Placing(floats, target, Settings.of(settings))  # finds wrong rules before the data is run
        wishes = wanted(Placing(floats, target))
        if not wishes:
            raise LoadError(
                f"{target.name} quantizes no activation of this model: there is nothing to observe",
                fix="'onnxq inspect' lists the operators of the model",
            )
        files = None if resume is None else ProgressFiles(Path(resume))
        if workers is None:
            file = None
            if files is not None:
                files.check()
                file = files.whole
            return observe(
                floats, wishes, data, part=part, most=samples, resume=file, progress=progress
            )
        own = files if executor is None and cluster is None else None
        cores = max(1, available_cores() // jobs) if jobs > 1 else None
        task = Task(source, wishes, _sendable(data), samples, own, cores, single)
        begun = Statistics.of(fingerprint(floats), wishes)
        return _divided(task, begun, part, count, workers, files, progress)


def _divided(
    task: Task,
    begun: Statistics,
    part: Part,
    count: int,
    workers: Workers,
    files: ProgressFiles | None,
    progress: Progress,
) -> Statistics:
    parts, left = part.divided(count), []
    if files is not None:
        files.check(parts)
    for each in parts:
        earlier = None if files is None else files.load(each, begun, task.data, task.most)
        if earlier is None:
            left.append(each)
        else:
            begun.merge(earlier)

    def done(each: Part, data: bytes) -> None:
        found = Statistics.loads(data)
        if files is not None:
            files.save(each, found, task.data, task.most)
        begun.merge(found)

    observe_in_parts(task, left, workers, done=done, progress=progress)
    if not begun.samples:
        raise LoadError(f"no sample is left for part {part} of the data", fix="make fewer parts")
    return begun


def _sendable(data: Data) -> Data:
    """Data that each worker can read from its beginning."""
    if isinstance(data, (str, os.PathLike)):
        return Path(data).absolute()
    if isinstance(data, Pictures):
        return data.absolute()
    if isinstance(data, (Mapping, np.ndarray, Sequence)):
        return data
    raise OptionError(
        "data that can be read only once cannot be divided among workers",
        fix="give a path, an array or a list, or use one process",
    )


@contextlib.contextmanager
def _workers(
    jobs: int, executor: Executor | None, cluster: str | None
) -> Iterator[tuple[Workers | None, int]]:
    """A way to open executors (None: this process does the work), and the number of parts."""
    if (jobs != 1) + (executor is not None) + (cluster is not None) > 1:
        raise OptionError(
            "several ways to divide the work were given", fix="choose --jobs or --cluster"
        )
    if jobs < 1:
        raise OptionError(f"{jobs} processes cannot work", fix="give --jobs 1 or more")
    if jobs > max(_MOST_JOBS, 4 * available_cores()):
        raise OptionError(
            f"{jobs} processes are more than this machine can use",
            fix=f"give --jobs up to the number of its cores, which is {available_cores()}",
        )
    if cluster is not None:
        with _client(cluster) as client:
            threads = sum(client.nthreads().values())
            given = client.get_executor(pure=False)
            yield lambda: contextlib.nullcontext(given), PARTS_PER_WORKER * max(threads, 1)
    elif executor is not None:
        yield lambda: contextlib.nullcontext(executor), _PARTS
    elif jobs == 1:
        yield None, 1
    else:
        yield lambda: _processes(jobs), PARTS_PER_WORKER * jobs


@contextlib.contextmanager
def _processes(jobs: int) -> Iterator[Executor]:
    """A pool that ends on an error or an interrupt: workers save what they know."""
    # Not forked: a copy of a process with the threads of onnxruntime may wait for ever.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=worker_interrupts.watch)
    try:
        yield pool
    except BaseException:
        # From Python 3.14 on there is a method for it.
        started = list((getattr(pool, "_processes", None) or {}).values())
        try:
            _end(pool, started)
        except KeyboardInterrupt:  # some shells interrupt twice
            _end(pool, started)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end(pool: ProcessPoolExecutor, started: list[Any]) -> None:
    """End the processes of a pool; what they save is there when this returns."""
    pool.shutdown(wait=False, cancel_futures=True)
    time.sleep(0.1)  # its thread fails in Python 3.11 if it meets what was cancelled later
    for process in started:
        process.terminate()
    for process in started:
        process.join()


def _client(address: str) -> AbstractContextManager[Any]:
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise OptionError(
            "a cluster needs dask.distributed, which is not installed",
            fix="pip install distributed",
        ) from error
    try:
        client: AbstractContextManager[Any] = distributed.Client(address, timeout=10)
    except (OSError, ValueError, TypeError) as error:
        raise OptionError(
            f"there is no cluster at '{address}' ({error})",
            fix="give the address that 'dask scheduler' prints, like tcp://host:8786",
        ) from error
    return client


__all__ = ["calibrate"]
