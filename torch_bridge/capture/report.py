"""The record of `prepare`: which tensors are quantized how, and which are not and why."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Leaf:
    """A submodule that was not traced."""

    path: str
    """Its path in the model; '' is the model itself."""
    reason: str
    """The error of the tracer."""
    cost: str
    """The parts that are not quantized because of that."""

    def __str__(self) -> str:
        where = f"'{self.path}'" if self.path else "the model itself"
        return f"{where}: {self.reason}; {self.cost}"


@dataclass(frozen=True)
class Row:
    """One quantizer."""

    module: str
    """Path of the FakeQuantize module."""
    tensor: str
    """The tensor that it quantizes: a module's path, or the name of a node of the graph."""
    what: str
    """Type and range."""


@dataclass
class Report:
    """The record of one `prepare`."""

    backend: str
    traced: bool = True
    """False: the model has no graph, and only layers with weights are quantized."""
    leaves: list[Leaf] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Layers that were fused, and tensors that stay float and why."""
    rows: list[Row] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    """Choices of the user that training does not follow."""

    def problems(self) -> Iterator[str]:
        """Facts that a user should know before training."""
        for leaf in self.leaves:
            yield f"could not be traced: {leaf}"
        yield from self.cautions
        if not self.rows:
            yield f"nothing in the model is quantized for {self.backend}"

    def warn(self) -> None:
        """One warning for all problems."""
        found = list(self.problems())
        if found:
            listed = "\n  ".join(found)
            warnings.warn(f"prepare for {self.backend}:\n  {listed}", UserWarning, stacklevel=3)

    def __str__(self) -> str:
        lines = [f"prepared for {self.backend}: {len(self.rows)} quantizers"]
        lines += [f"  {row.module}: {row.tensor}, {row.what}" for row in self.rows]
        lines += [f"  not traced: {leaf}" for leaf in self.leaves]
        lines += [f"  {note}" for note in (*self.cautions, *self.notes)]
        return "\n".join(lines)
