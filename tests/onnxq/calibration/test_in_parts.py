"""Work divided among workers: the same bytes, lost workers, and errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.calibration import in_parts
from onnxq.calibration.float_form import float_form
from onnxq.calibration.in_parts import Task, observe_in_parts, observe_part
from onnxq.errors import LoadError, VerifyError
from onnxq.graph import save
from onnxq.observing import observe as observing
from onnxq.observing.observe import Part, observe
from onnxq.observing.progress_files import ProgressFiles
from onnxq.observing.statistics import Statistics, merged
from onnxq.observing.tensor_statistics import Wanted
from tests.models.build import parse

MODEL = parse(
    """g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1, -2, 3, 0.5}>
    { h = MatMul(x, w)  y = Relu(h) }"""
)
WANTED = {"x": Wanted(channels=-1), "h": Wanted(), "y": Wanted()}
DATA = np.random.default_rng(0).normal(size=(9, 1, 2)).astype(np.float32)
TASK = Task(MODEL, WANTED, DATA)
PARTS = Part().divided(4)
WHOLE = observe(float_form(MODEL)[0], WANTED, DATA).dumps()


class Fragile(Executor):
    """Runs tasks at once; `loses` says which of them take the executor down."""

    def __init__(self, loses: Callable[[Part], bool], whole_pool: bool) -> None:
        self._loses, self._whole_pool, self._broken = loses, whole_pool, False
        self.ran: list[Part] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        part, made = args[1], Future[Any]()
        if self._broken:
            raise BrokenProcessPool("the pool is not usable anymore")
        if self._loses(part):
            made.set_exception(BrokenProcessPool("a process ended abruptly"))
            self._broken = self._whole_pool
        else:
            self.ran.append(part)
            made.set_result(fn(*args, **kwargs))
        return made


def collect(workers: Any, task: Task = TASK) -> dict[Part, bytes]:
    found: dict[Part, bytes] = {}
    observe_in_parts(task, PARTS, workers, done=found.__setitem__)
    return found


def whole(found: dict[Part, bytes]) -> bytes:
    return merged(map(Statistics.loads, found.values())).dumps()


@pytest.mark.parametrize("source", ["model", "path"])
def test_threads_give_the_bytes_of_one_run(source: str, tmp_path: Path) -> None:
    task = TASK
    if source == "path":
        save(MODEL, tmp_path / "m.onnx")
        task = Task(tmp_path / "m.onnx", WANTED, DATA)
    found = collect(lambda: ThreadPoolExecutor(3), task)
    assert set(found) == set(PARTS)
    assert whole(found) == WHOLE


@pytest.mark.parametrize("whole_pool", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_the_part_of_a_lost_worker_is_run_again(whole_pool: bool, times: int) -> None:
    lost: list[Part] = []

    def loses(part: Part) -> bool:
        if part != PARTS[1] or len(lost) == times:
            return False
        lost.append(part)
        return True

    pools: list[Fragile] = []

    def workers() -> Any:
        pools.append(Fragile(loses, whole_pool))
        return contextlib.nullcontext(pools[-1])

    found = collect(workers)
    assert whole(found) == WHOLE
    ran = [part for pool in pools for part in pool.ran]
    assert sorted(ran, key=str) == sorted(PARTS, key=str)  # none twice: the others are kept


def test_a_part_that_always_loses_its_worker_is_named() -> None:
    with pytest.raises(VerifyError, match=r"part 3/4 .* lost 3 times") as error:
        collect(lambda: contextlib.nullcontext(Fragile(lambda part: part == PARTS[2], True)))
    assert "memory" in error.value.fix


def test_an_error_of_the_data_is_raised_at_once_as_it_is() -> None:
    data = DATA.copy()
    data[5] = np.nan
    tasks: list[int] = []

    def workers() -> Any:
        tasks.append(1)
        return ThreadPoolExecutor(2)

    with pytest.raises(LoadError, match=r"sample 6 .*not finite"):
        collect(workers, Task(MODEL, WANTED, data))
    assert len(tasks) == 1


def test_a_fault_of_the_program_keeps_its_type_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(in_parts, "observe", broken)
    found = observe_part(TASK, Part())
    assert isinstance(found, ZeroDivisionError)
    assert "in broken" in "".join(found.__notes__)
    with pytest.raises(ZeroDivisionError):
        collect(lambda: ThreadPoolExecutor(1))


def test_more_parts_than_samples() -> None:
    found: dict[Part, bytes] = {}
    parts = Part().divided(12)
    observe_in_parts(TASK, parts, lambda: ThreadPoolExecutor(2), done=found.__setitem__)
    assert whole(found) == WHOLE


def test_a_worker_reads_a_model_that_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save(MODEL, path)
    first = observe_part(Task(path, WANTED, DATA), Part())
    save(parse("g (float[1,2] x) => (float[1,2] y) { h = Neg(x)  y = Relu(h) }"), path)
    second = observe_part(Task(path, WANTED, DATA), Part())
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert Statistics.loads(first).model != Statistics.loads(second).model


def test_a_model_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    found = observe_part(Task(tmp_path / "none.onnx", WANTED, DATA), Part())
    assert isinstance(found, LoadError)
    assert "none.onnx" in found.what


def test_a_worker_that_was_killed_left_what_it_knew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "SAVE_SECONDS", 0.0)
    files = ProgressFiles.beside(tmp_path / "all.stats")
    part, read = Part(0, 2), []

    class Killed(BaseException):
        """Nothing is cleaned up after it."""

    class Deadly(list[np.ndarray]):
        def __iter__(self) -> Any:
            for number, sample in enumerate(super().__iter__()):
                if number == 4 and not read:
                    read.append(number)
                    raise Killed
                yield sample

    task = Task(MODEL, WANTED, Deadly(DATA), files=files)
    with pytest.raises(Killed):
        observe_part(task, part)
    assert Statistics.load(files.of(part)).samples == 2
    found = observe_part(task, part)
    assert found == observe(float_form(MODEL)[0], WANTED, DATA, part=part).dumps()
