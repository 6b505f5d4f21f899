"""A model while it is measured: its process, its inputs and how it fared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from onnxq.running.ort_tensors import TensorSpec
from onnxq.running.samples import Feed
from onnxq.timing.child import Child, Died
from onnxq.timing.stopwatch import Run
from onnxq.timing.survey import Survey


@dataclass
class Contender:
    """One model of a comparison."""

    label: str
    path: Path
    child: Child
    file_bytes: int
    inputs: tuple[TensorSpec, ...] = ()
    """What the model declares."""
    taken: tuple[str, ...] = ()
    """The shapes it was given."""
    own_inputs: bool = False
    """Whether they are not those of the first model."""
    estimate: float = 0.0
    """The seconds of a run when warming up."""
    survey: Survey | None = None
    failure: str = ""
    notes: list[str] = field(default_factory=list)

    def take(self, feeds: list[Feed]) -> None:
        """Take samples, and run each once."""
        self.child.ask("take", feeds)
        self.taken = tuple(f"{name} {v.dtype}{list(v.shape)}" for name, v in feeds[0].items())

    def turn(self, number: int, runs: int) -> list[Run]:
        """One turn in a round."""
        timed: list[Run] = self.child.ask("turn", number, runs)
        return timed

    @contextlib.contextmanager
    def dying(self) -> Iterator[None]:
        """Remember how the model dies inside."""
        try:
            yield
        except Died as death:
            self.failure = str(death)
