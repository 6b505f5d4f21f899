"""The commands and settings that act on what a report finds, with the names of the user's files.

What the user has not given is written in capitals: FLOAT.onnx, DATA.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

FLOAT, SOURCE, DATA = "FLOAT.onnx", "SOURCE.onnx", "DATA"
OUT, RULES = "out/", "rules.json"


@dataclass(frozen=True)
class Names:
    """The files and the target of a report."""

    model: str
    backend: str
    variant: str | None = None
    against: str | None = None
    """The trusted model; None if there is none."""
    source: str | None = None
    """The float model, if it is known."""
    data: str | None = None

    def quantize(self, *options: str) -> str:
        """Quantize the float model again."""
        data = ("--data", self.data or DATA)
        return _line("quantize", self.source or FLOAT, *self._target(), *data, *options, "-o", OUT)

    def convert(self, *options: str) -> str:
        """Convert the model for the target."""
        variant = () if "--variant" in options else self._variant()
        target = ("--backend", self.backend, *variant)
        return _line("convert", self.model, *target, *options, "-o", OUT)

    def explain(self, tensor: str) -> str:
        """Explain one tensor."""
        # After a double dash nothing is an option.
        dash = " --" if tensor.startswith("-") else ""
        return f"{_line('explain', self.model, *self._target())}{dash} {shlex.quote(tensor)}"

    def report(self, **more: str) -> str:
        """Make the report again, with more to go by."""
        given = {"against": self.against, "data": self.data} | more
        options = [w for name, value in given.items() if value for w in (f"--{name}", value)]
        return _line("report", self.model, *self._target(), *options, "-o", "report.html")

    def verify(self) -> str:
        """Compare the model with the trusted one, layer by layer."""
        return _line("verify", self.against or SOURCE, self.model, "--per-layer")

    def _target(self) -> tuple[str, ...]:
        return ("--backend", self.backend, *self._variant())

    def _variant(self) -> tuple[str, ...]:
        return () if self.variant is None else ("--variant", self.variant)


def _line(command: str, *words: str) -> str:
    # A name that starts with a dash would be read as an option.
    safe = (f"./{w}" if w.startswith("-") and w not in _OPTIONS else w for w in words)
    return shlex.join(["onnxq", command, *safe])


_OPTIONS = {"-o", "-p"} | {
    f"--{name}"
    for name in (
        *("backend", "variant", "data", "against", "settings", "method", "allow-requantize"),
        *("target-sqnr", "bench", "report", "per-layer"),
    )
}


def rules(names: Iterable[str], change: Any) -> str:
    """A file of rules that changes the settings of some layers."""
    return json.dumps([[selector(name), change] for name in names], ensure_ascii=False)


def selector(name: str) -> str:
    """What selects the layer of that name and those below it."""
    special = name.startswith("re:") or any(sign in name for sign in "*?[")
    return f"re:{re.escape(name)}" if special else name


__all__ = ["DATA", "FLOAT", "RULES", "Names", "rules", "selector"]
