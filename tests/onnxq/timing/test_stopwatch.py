"""Runs that other programs interrupt, with clocks that do as they are told."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from onnxq.timing import stopwatch
from onnxq.timing.stopwatch import Run, Turn, timed


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


def test_real_clocks() -> None:
    (found,) = timed(lambda: sum(range(10_000)), 1)
    assert 0 <= found.waited < found.seconds
