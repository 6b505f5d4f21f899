"""Interleaved rounds, with a clock and players that need no time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.timing.child import Died
from onnxq.timing.rounds import LEAST, MOST_RUNS, WANTED, Rounds, Spread, play, runs_of
from onnxq.timing.stopwatch import Run, Turn


@dataclass
class Clock:
    """Time that passes only when a player runs."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Fake:
    """A player with a fixed latency, or one for each round."""

    name: str
    latency: float
    clock: Clock
    heard: list[tuple[str, int]]
    dies_in: int = -1
    drift: list[float] = field(default_factory=list)

    def turn(self, number: int, runs: int) -> list[Run]:
        if number == self.dies_in:
            raise Died("SIGABRT")
        self.heard.append((self.name, number))
        took = self.latency * (self.drift[number % len(self.drift)] if self.drift else 1.0)
        self.clock.now += took * (runs + 1)
        return [Run(took, 0.0)] * runs


def game(*latencies: float, seconds: float = 1.0, **fields: object) -> tuple[Rounds, list[str]]:
    clock, heard = Clock(), []
    players = [Fake("ABCD"[n], v, clock, heard, **fields) for n, v in enumerate(latencies)]
    done = play(players, latencies, seconds, clock)
    return done, [name for name, _ in heard]


def test_turns_are_interleaved() -> None:
    done, order = game(0.001, 0.003)
    rounds = len(done.turns[0])
    assert order == ["A", "B"] * rounds
    assert rounds >= LEAST


@given(
    latencies=st.lists(st.floats(1e-5, 2.0), min_size=1, max_size=4),
    seconds=st.floats(0.01, 20.0),
)
def test_there_are_enough_rounds_and_not_many_more(latencies: list[float], seconds: float) -> None:
    done, order = game(*latencies, seconds=seconds)
    rounds = len(done.turns[0])
    assert all(len(times) == rounds for times in done.turns)
    assert len(order) == rounds * len(latencies)
    assert rounds >= LEAST
    used = [runs + 1 for runs in done.runs]
    one_round = sum(v * n for v, n in zip(latencies, used, strict=True))
    assert rounds == LEAST or (rounds - 1) * one_round < seconds * (1 + 1e-9)
    # A turn is never much longer than its part of the time, unless two runs are.
    turn = seconds / (WANTED * len(latencies))
    assert all(v * n <= max(turn, 2 * v) + 1e-9 for v, n in zip(latencies, used, strict=True))


def test_a_ratio_is_to_the_first_and_1_for_the_first() -> None:
    done, _ = game(0.002, 0.001)
    assert done.ratio(0) == Spread(1.0, 1.0, 1.0)
    assert done.ratio(1).median == pytest.approx(0.5)


def test_a_ratio_does_not_change_with_the_speed_of_the_machine() -> None:
    done, _ = game(0.002, 0.001, drift=[1.0, 3.0, 0.5, 7.0])
    assert done.spread(0).high > 2 * done.spread(0).low
    for value in vars(done.ratio(1)).values():
        assert value == pytest.approx(0.5)


def test_one_that_dies_leaves_the_others() -> None:
    clock, heard = Clock(), []
    players = [Fake("A", 0.01, clock, heard), Fake("B", 0.01, clock, heard, dies_in=2)]
    done = play(players, [0.01, 0.01], 0.5, clock)
    assert done.deaths == {1: "SIGABRT"}
    assert done.spread(1) is None
    assert done.ratio(1) is None
    assert len(done.turns[0]) >= LEAST
    assert [n for n, _ in heard].count("B") == 2


def test_nobody_is_left() -> None:
    clock: Clock = Clock()
    done = play([Fake("A", 0.01, clock, [], dies_in=0)], [0.01], 1.0, clock)
    assert done.deaths == {0: "SIGABRT"}
    assert play([], [], 1.0, clock).turns == []


@pytest.mark.parametrize(
    ("estimate", "turn", "runs"),
    [(0.1, 0.05, 1), (0.001, 0.05, 49), (0.0, 1.0, MOST_RUNS), (1e-9, 1.0, MOST_RUNS)],
)
def test_runs_of_a_turn(estimate: float, turn: float, runs: int) -> None:
    assert runs_of(estimate, turn) == runs


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=20))
def test_a_spread_is_in_order(values: list[float]) -> None:
    spread = Spread.of(values)
    low, high = min(values), max(values)
    bounds = [low, spread.low, spread.median, spread.high, high]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(bounds))
    assert spread.times(2.0).median == 2 * spread.median


def rounds(*players: list[tuple[float, bool]]) -> Rounds:
    return Rounds([[Turn(*turn) for turn in turns] for turns in players], [1] * len(players))


def test_interrupted_rounds_do_not_count_if_enough_are_left() -> None:
    mixed = [(1.0, True), (9.0, False)] * LEAST
    done = rounds(mixed, [(2.0, True)] * (2 * LEAST))
    assert done.spread(0) == Spread(1.0, 1.0, 1.0)
    assert done.ratio(1) == Spread(2.0, 2.0, 2.0)
    assert done.trusted(0)


def test_too_few_clean_rounds_are_not_trusted() -> None:
    mixed = [(1.0, True)] * (LEAST - 1) + [(9.0, False)] * 20
    done = rounds(mixed)
    assert done.spread(0).median == 9.0
    assert not done.trusted(0)
