"""The record of `prepare`: which tensors are quantized how, and which are not and why."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxq.views.shown_result import MOST_LINES, ShownResult

if TYPE_CHECKING:
    from rich.console import RenderableType

CAPTURES = {
    "fx": "torch.fx",
    "export": "torch.export",
    "modules": "its modules, without a graph",
}
"""Ways to capture a model, in words."""
_SHOWN = 5


@dataclass(frozen=True)
class Leaf:
    """A submodule that was not traced."""

    path: str
    """Its path in the model; '' is the model itself."""
    reason: str
    """The error of the tracer."""
    cost: str
    """The parts that are not quantized because of that."""

    @property
    def where(self) -> str:
        """Its name in a sentence."""
        return f"'{self.path}'" if self.path else "the model itself"

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}; {self.cost}"


@dataclass(frozen=True)
class Product:
    """A layer with a weight, or a matrix product of activations, that the target has on codes."""

    name: str
    """The module's path, or the node's name and the module whose code it is in."""
    float_reason: str = ""
    """Why it is computed in float; '' if it is quantized."""
    asked: bool = False
    """Whether the user asked for it to be computed in float."""


@dataclass(frozen=True)
class Decided:
    """A rule for layers, and what it decides about."""

    rule: str
    """Selector and change, as in a file."""
    names: tuple[str, ...]
    """Modules and nodes; none if earlier rules match all of them."""

    def __str__(self) -> str:
        if not self.names:
            return f"rule {self.rule}: decides nothing, earlier rules match all its layers"
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        return f"rule {self.rule}: {', '.join(self.names[:_SHOWN])}{more}"


@dataclass(frozen=True)
class Row:
    """One quantizer."""

    module: str
    """Path of the FakeQuantize module."""
    tensor: str
    """The tensor that it quantizes: a module's path, or the name of a node of the graph."""
    what: str
    """Type and range."""
    how: str = ""
    """The algorithm that it trains by, and the observer of its range."""

    def __str__(self) -> str:
        return f"{self.module}: {self.tensor}, {self.what}{f', {self.how}' if self.how else ''}"


@dataclass(repr=False)
class Report(ShownResult):
    """The record of one `prepare`."""

    backend: str
    traced: bool = True
    """False: the model has no graph, and only layers with weights are quantized."""
    capture: str = "fx"
    """How the graph was made: 'fx', 'export' (torch.export), or 'modules', without a graph."""
    capture_reason: str = ""
    """Why not by an earlier one of these."""
    leaves: list[Leaf] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Layers that were fused, and tensors that stay float and why."""
    rows: list[Row] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    """Choices of the user that training does not follow, and of the model that the graph does not.
    """
    products: list[Product] = field(default_factory=list)
    """Products that the target asks for: those that are quantized, and those that stay float."""
    rules: list[Decided] = field(default_factory=list)
    """The rules for layers, in order."""

    def summary(self) -> str:
        """One line: how many products are quantized, and which are not."""
        done = sum(not p.float_reason for p in self.products)
        line = f"{done} of {len(self.products)} products quantized"
        for asked, words in ((True, "float as asked"), (False, "float")):
            left = [p for p in self.products if p.float_reason and p.asked is asked]
            shown = "; ".join(f"{p.name} ({p.float_reason})" for p in left[:_SHOWN])
            more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            line += f"; {words}: {shown}{more}" if left else ""
        return line

    def problems(self) -> Iterator[str]:
        """Facts that a user should know before training."""
        for leaf in self.leaves:
            yield f"could not be traced: {leaf}"
        yield from self.cautions
        if any(product.float_reason and not product.asked for product in self.products):
            yield self.summary()
        if not self.rows:
            yield f"nothing in the model is quantized for {self.backend}"

    def warn(self) -> None:
        """One warning for all problems."""
        found = list(self.problems())
        if found:
            listed = "\n  ".join(found)
            warnings.warn(f"prepare for {self.backend}:\n  {listed}", UserWarning, stacklevel=4)

    def __repr__(self) -> str:
        done = sum(not p.float_reason for p in self.products)
        told = f"{len(self.rows)} quantizers, {done} of {len(self.products)} products quantized"
        return f"<Report of prepare for {self.backend}: {told}>"

    def __str__(self) -> str:
        """The record in at most 25 lines; `lines` has all of them."""
        lines = self.lines()
        if len(lines) <= MOST_LINES:
            return "\n".join(lines)
        room = MOST_LINES - 1  # a part that is cut says so in a line
        head = _cut(self._head(), room - 10, "rules")
        tail = _cut(self._tail(), room - len(head) - 5, "notes")
        rows = [f"  {row}" for row in self.rows]
        kept = _cut(rows, room - len(head) - len(tail), "quantizers")
        return "\n".join((*head, *kept, *tail))

    def lines(self) -> list[str]:
        """Every rule, every quantizer, and what stays float and why."""
        return [*self._head(), *(f"  {row}" for row in self.rows), *self._tail()]

    def facts(self) -> list[str]:
        """The lines that are not about one quantizer."""
        return [*self._head(), *self._tail()]

    def _head(self) -> list[str]:
        why = f": {self.capture_reason}" if self.capture_reason else ""
        return [
            f"prepared for {self.backend}: {len(self.rows)} quantizers",
            f"  captured by {CAPTURES[self.capture]}{why}",
            f"  {self.summary()}",
            *(f"  {each}" for each in self.rules),
        ]

    def _tail(self) -> list[str]:
        told = [f"  not traced: {leaf}" for leaf in self.leaves]
        return [*told, *(f"  {note}" for note in (*self.cautions, *self.notes))]

    def _view(self, most: int) -> RenderableType:
        from onnxq.views import prepared

        return prepared.prepared(self, most)


def _cut(lines: list[str], most: int, what: str) -> list[str]:
    """The first `most` lines, and how many others there are."""
    if len(lines) <= most:
        return lines
    return [*lines[:most], f"  ... and {len(lines) - most} more {what} (lines() has all)"]
