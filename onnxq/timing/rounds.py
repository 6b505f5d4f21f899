"""Rounds: every model has a turn in each, so what disturbs the machine disturbs all alike.

A turn is one untimed run, which brings the model's weights back into the caches that the others
filled, and then timed ones; its latency is the median of those that other programs did not
interrupt (see `stopwatch`). A model's latency is the median over the rounds, its ratio to the
first model the median of the ratios within a round: a clock that slows down between two rounds
changes both latencies of a round, and the ratio not at all.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from onnxq.timing.child import Died
from onnxq.timing.stopwatch import Run, Turn

LEAST = 5
"""Rounds at least, however long they take."""

WANTED = 30
"""Rounds that the time is divided into, if the models are fast enough."""

MOST_RUNS = 10_000
"""Runs of a turn at most."""


class Player(Protocol):
    """A model that is ready to run."""

    def turn(self, number: int, runs: int) -> list[Run]:
        """The timed runs in round `number`; raises Died."""


@dataclass(frozen=True)
class Spread:
    """A median with the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def times(self, factor: float) -> Spread:
        """The spread in another unit."""
        return Spread(self.median * factor, self.low * factor, self.high * factor)


@dataclass
class Rounds:
    """The turns of each player, one in each round; players that died have none."""

    turns: list[list[Turn]]
    runs: list[int]
    """Timed runs of a turn."""
    deaths: dict[int, str] = field(default_factory=dict)
    """How players died, by their position."""

    @property
    def count(self) -> int:
        """The number of rounds."""
        return max(map(len, self.turns), default=0)

    def spread(self, player: int) -> Spread | None:
        """The latency of a player: over the clean rounds, or over all if too few are."""
        return _spread((turn.seconds, turn.clean) for turn in self.turns[player])

    def ratio(self, player: int, base: int = 0) -> Spread | None:
        """The latency of a player in units of another's, in the same way."""
        pairs = zip(self.turns[player], self.turns[base], strict=False)
        return _spread((a.seconds / b.seconds, a.clean and b.clean) for a, b in pairs if b.seconds)

    def trusted(self, player: int) -> bool:
        """Whether enough rounds of a player are clean."""
        return sum(turn.clean for turn in self.turns[player]) >= LEAST


def _spread(found: Iterable[tuple[float, bool]]) -> Spread | None:
    values = list(found)
    clean = [value for value, is_clean in values if is_clean]
    used = clean if len(clean) >= LEAST else [value for value, _ in values]
    return Spread.of(used) if used else None


def play(
    players: Sequence[Player],
    estimates: Sequence[float],
    seconds: float,
    clock: Callable[[], float],
) -> Rounds:
    """Let the players take turns for about `seconds`; `estimates` are latencies of one run."""
    turn = seconds / (WANTED * max(len(players), 1))
    runs = [runs_of(estimate, turn) for estimate in estimates]
    done = Rounds([[] for _ in players], runs)
    start = clock()
    number = 0
    alive = list(range(len(players)))
    while alive and (number < LEAST or clock() - start < seconds):
        for player in tuple(alive):
            try:
                timed = players[player].turn(number, runs[player])
            except Died as death:
                done.deaths[player] = str(death)
                done.turns[player].clear()
                alive.remove(player)
            else:
                done.turns[player].append(Turn.of(timed))
        number += 1
    return done


def runs_of(estimate: float, turn: float) -> int:
    """Timed runs of a turn that takes about `turn` seconds, the untimed one included."""
    if estimate <= 0:
        return MOST_RUNS
    return int(min(max(turn / estimate - 1, 1), MOST_RUNS))
