"""Runs that other programs interrupt, with clocks that do as they are told."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from onnxq.timing import stopwatch
from onnxq.timing.stopwatch import Run, Turn, _assigned, timed


@dataclass
class Machine:
    """A machine whose clocks stand still outside of runs."""

    wall: float = 0.0
    own: float = 0.0
    switches: int = 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: made.wall)
    monkeypatch.setattr(stopwatch.time, "thread_time", lambda: made.own)
    monkeypatch.setattr(stopwatch, "_TASKS", "/nowhere")
    monkeypatch.setattr(stopwatch, "_switch_counter", lambda: lambda: made.switches)
    return made


@pytest.mark.parametrize(
    ("wall", "own", "switches", "interrupted"),
    [
        (1.0, 1.0, 0, False),
        (3.0, 1.0, 1, True),
        (3.0, 1.0, 0, False),  # it waited for its own threads
        (1.01, 1.0, 5, False),
        (1.0, 1.5, 1, False),
    ],
)
def test_a_run_is_interrupted_if_the_system_takes_the_cpu_away(
    machine: Machine, wall: float, own: float, switches: int, interrupted: bool
) -> None:
    def run() -> None:
        machine.wall += wall
        machine.own += own
        machine.switches += switches

    for found in timed(run, 3):
        assert found.seconds == pytest.approx(wall)
        assert found.interrupted is interrupted


def test_the_latency_of_a_turn() -> None:
    slow, fast = Run(9.0, 8.0), Run(1.0, 0.0)
    assert Turn.of([slow, fast, slow, Run(2.0, 0.0), Run(3.0, 0.0)]) == Turn(2.0, True)
    assert Turn.of([slow, Run(5.0, 4.0)]) == Turn(5.0, False)


def test_short_waits_do_not_count() -> None:
    assert not Run(1e-5, 5e-5).interrupted
    assert Run(1e-5, 2e-3).interrupted
    assert not Run(1.0, 0.01).interrupted


MILLION = 1_000_000


@pytest.mark.parametrize(
    ("seen", "waits"),
    [
        ([(0.0, [0, 0]), (1.0, [0, 0]), (2.0, [0, 0])], [0.0, 0.0]),
        # Half a second until the end of the second run.
        ([(0.0, [7, 0]), (1.0, [7, 0]), (2.0, [7, 500 * MILLION])], [0.0, 0.5]),
        # It began in the first run and was counted in the second.
        ([(0.0, [0, 0]), (1.0, [0, 0]), (2.0, [0, 1400 * MILLION])], [0.4, 1.0]),
        # Two threads at once: the longest counts.
        ([(0.0, [0, 0]), (1.0, [0, 0]), (2.0, [200 * MILLION, 300 * MILLION])], [0.0, 0.3]),
        # Counted after the last run.
        ([(0.0, [0, 0]), (1.0, [0, 0]), (2.0, [0, 0]), (2.5, [0, 700 * MILLION])], [0.0, 0.2]),
    ],
)
def test_waits_belong_to_the_runs_in_which_they_were(
    seen: list[tuple[float, list[int]]], waits: list[float]
) -> None:
    assert _assigned([(0.0, 1.0), (1.0, 2.0)], seen) == pytest.approx(waits)


def test_several_threads_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "_TASKS", str(tmp_path))
    for task in ("1", "2"):
        (tmp_path / task).mkdir()
        (tmp_path / task / "schedstat").write_text("5 1000000 7\n")

    def run() -> None:
        (tmp_path / "2" / "schedstat").write_text("5 9001000000 8\n")

    (found,) = timed(run, 1)
    assert found.waited == pytest.approx(found.seconds)  # nine seconds, of which it had a part
    assert found.seconds > 0


def test_a_system_that_counts_no_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "_TASKS", str(tmp_path))
    for task in ("1", "2"):
        (tmp_path / task).mkdir()
    assert len(timed(lambda: None, 2)) == 2


@pytest.mark.parametrize("threads", [0, 1])
def test_real_clocks(threads: int) -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    if threads:
        other.start()
    found = timed(lambda: sum(range(10_000)), 3)
    done.set()
    assert all(run.seconds > 0 and run.waited >= 0 for run in found)


def test_a_thread_that_ends_meanwhile_is_no_fault() -> None:
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()

    def run() -> None:
        ended.set()
        other.join()

    assert len(timed(run, 3)) == 3
