"""A process for one model: answers, errors and deaths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxq.errors import LoadError, VerifyError
from onnxq.graph import save
from onnxq.timing import child
from onnxq.timing.child import Child, Died
from tests.models.build import parse


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    save(parse("g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }"), path)
    return path


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Child]:
    with Child(tmp_path / "log") as made:
        yield made


def test_an_answer_comes_back(process: Child, model: Path) -> None:
    (x,) = process.ask("open", str(model), 1)
    assert (x.name, x.shape) == ("x", ("N", 3))
    (filled,) = process.ask("fill", (x,), 0)
    assert filled.shape == (1, 3)


def test_an_error_comes_back_with_its_next_step(process: Child, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"none\.onnx") as error:
        process.ask("open", str(tmp_path / "none.onnx"), 1)
    assert error.value.fix


def test_the_same_process_serves_after_an_error(process: Child, model: Path) -> None:
    with pytest.raises(LoadError):
        process.ask("open", "none.onnx", 1)
    assert process.ask("open", str(model), 1)


def test_a_death_is_told_with_its_signal_and_last_words(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "WORKER", "tests.models.dying_worker")
    path = model.rename(tmp_path / "aborts-in-fill.onnx")
    with Child(tmp_path / "log") as process:
        inputs = process.ask("open", str(path), 1)
        with pytest.raises(Died, match=r"SIGABRT.*choosing the sizes.*terminate called"):
            process.ask("fill", inputs, 0)
        with pytest.raises(Died, match="SIGABRT"):
            process.ask("fill", inputs, 0)


def test_a_fault_of_onnxq_is_not_taken_for_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "WORKER", "tests.models.dying_worker")
    with (
        Child(tmp_path / "log") as process,
        pytest.raises(AssertionError, match="ZeroDivisionError"),
    ):
        process.ask("open", "fault-in-open.onnx", 1)


def test_the_process_ends_with_the_block(tmp_path: Path) -> None:
    with Child(tmp_path / "log") as process:
        pass
    assert process._process.returncode is not None


def test_a_process_that_cannot_start_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child.sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(VerifyError, match="cannot start a process"):
        Child(tmp_path / "log")
