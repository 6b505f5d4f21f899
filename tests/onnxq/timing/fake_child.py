"""A contender without a process: its worker is in this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxq.graph import save
from onnxq.timing.child import Died
from onnxq.timing.contender import Contender
from onnxq.timing.worker import Worker
from tests.models.build import parse


class FakeChild:
    """Answers as a child does; dies in one kind of request, if asked to."""

    def __init__(self, dies_in: str = "") -> None:
        self.worker = Worker()
        self.dies_in = dies_in

    def ask(self, what: str, *arguments: Any) -> Any:
        """The worker's answer."""
        if what == self.dies_in:
            raise Died(f"SIGABRT in {what}")
        return getattr(self.worker, what)(*arguments)


def contender(label: str, body: str, folder: Path, dies_in: str = "") -> Contender:
    """A contender that has been opened."""
    path = folder / f"{label}.onnx"
    save(parse(body), path)
    made = Contender(label, path, FakeChild(dies_in), 0)  # type: ignore[arg-type]
    made.inputs = made.child.ask("open", str(path), 1)
    return made
