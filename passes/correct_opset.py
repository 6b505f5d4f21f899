"""Correct an opset stamp that does not match the operators in the graph.

No runtime loads such files. Tools write stamps that are too old and stamps that are too new; the
operators show which opset is right.

A stamp too old: HardSwish (opset 14) or LayerNormalization (17) in a file stamped with opset 13.
The stamp becomes the lowest opset from the written one on that knows every operator with the
attributes it has. Operators that the written opset does know are carried over without a change of
meaning.

A stamp too new: nodes of an export for opset 13 in a file that was stamped 21 later to allow 4-bit
codes. ReduceMean with the attribute `axes`, an input since 18, shows that the graph was written for
17 at most, so all of it is carried from there to the stamp. If other nodes show that they were
written for a later opset than that, the file is mixed, and only those that the stamp does not know
are carried.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.edit import describe
from onnxq.errors import UnsupportedModelError
from onnxq.graph import MAX_OPSET, Model, domain_of
from onnxq.opsets.opset_upgrade import carry, schema_of
from onnxq.pass_ import Pass, Trace

_ADDED = ("QuantizeLinear", "DequantizeLinear", "Cast")
"""Operators added by quantizing: they have the form of the stamp, not that of the graph."""


@dataclass(frozen=True)
class CorrectOpset(Pass):
    """Correct an opset stamp that is older or newer than the operators in the graph."""

    name: ClassVar[str] = "correct-opset"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        if model.opset > MAX_OPSET:
            trace.note(f"opset {model.opset} is newer than onnxq supports ({MAX_OPSET})")
            return
        self._carry_old_forms(model, trace)
        stamp = model.opset
        first = max(_forms(model), key=partial(_first_opset, stamp=stamp), default=None)
        if first is None or _first_opset(first, stamp) == stamp:
            return
        need = _first_opset(first, stamp)
        why = f"{describe(first)} ({first.op}) does not exist in opset {stamp}"
        try:
            model.require_opset(need, why)
        except UnsupportedModelError as error:
            trace.skip(first, f"the opset stamp {stamp} is too old for it, and {error.what}")
            return
        trace.rewrote(first, f"opset {stamp} is raised to {need}, the first that has {first.op}")

    @staticmethod
    def _carry_old_forms(model: Model, trace: Trace) -> None:
        stamp = model.opset
        first = min(_forms(model), key=partial(_last_opset, stamp=stamp), default=None)
        if first is None or _last_opset(first, stamp) == stamp:
            return
        written = _last_opset(first, stamp)
        mixed = any(_oldest_opset(n) > written for n in model.nodes() if n.op not in _ADDED)
        try:
            carry(model, partial(_last_opset, stamp=stamp) if mixed else lambda _: written)
        except UnsupportedModelError as error:
            trace.skip(first, f"the opset stamp {stamp} is too new for it, and {error.what}")
            return
        which = "nodes whose form is older" if mixed else f"nodes of opset {written}"
        trace.rewrote(first, f"{which} are carried to opset {stamp}, as stamped")


def _forms(model: Model) -> list[gs.Node]:
    """The first node of each operator with each set of attributes."""
    found: dict[tuple[str, ...], gs.Node] = {}
    for node in model.nodes():
        found.setdefault((node.domain or "", node.op, *node.attrs), node)
    return list(found.values())


def _first_opset(node: gs.Node, stamp: int) -> int:
    """The first opset from `stamp` on that knows the operator as it is written, else `stamp`."""
    return min((v for v in _opsets(node) if v >= stamp), default=stamp)


def _last_opset(node: gs.Node, stamp: int) -> int:
    """The last opset up to `stamp` that knows the operator as it is written, else `stamp`."""
    return max((v for v in _opsets(node) if v <= stamp), default=stamp)


def _oldest_opset(node: gs.Node) -> int:
    """The first opset of all that knows the operator as it is written, with all its inputs."""
    return min(_opsets(node, len(node.inputs)), default=1)


def _opsets(node: gs.Node, inputs: int = 0) -> tuple[int, ...]:
    """The opsets that know the operator as it is written; none for private operators."""
    return () if domain_of(node) else _versions(node.op, tuple(node.attrs), inputs)


@functools.lru_cache(maxsize=1 << 12)
def _versions(op: str, attributes: tuple[str, ...], inputs: int) -> tuple[int, ...]:
    """The opsets that have the operator with these attributes and at least as many inputs."""
    return tuple(
        version
        for version in range(1, MAX_OPSET + 1)
        if (schema := schema_of(op, version)) is not None
        and inputs <= schema.max_input
        and set(attributes) <= schema.attributes.keys()
    )
