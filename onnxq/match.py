"""A small matcher for patterns of several nodes, such as Q -> Clip -> DQ or a diamond.

A pattern is written as it computes, outermost operator first:

    DQ = op("DequantizeLinear", op("Clip", op("QuantizeLinear", "x", "s", "z"), "lo", "hi"), ...)

A string captures the tensor at that input; the same string twice must meet the same tensor, which
is how a diamond is written. "?" in front of a name marks an input that may be left out. `match`
answers with the captured tensors and nodes, or with the reason why it did not match, so that a
pass can report it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_graphsurgeon as gs

from onnxq.constants import array
from onnxq.edit import describe, producer
from onnxq.graph import domain_of


@dataclass(frozen=True)
class Op:
    """One node of a pattern."""

    ops: tuple[str, ...]
    inputs: tuple[Op | str, ...]
    name: str = ""
    swaps: bool = False

    def __getitem__(self, name: str) -> Op:
        """The same pattern, its node captured under `name`."""
        return Op(self.ops, self.inputs, name, self.swaps)


def op(ops: str, *inputs: Op | str, swaps: bool = False) -> Op:
    """A node of one of `ops` ('A|B', 'domain::A'); `swaps`: its two inputs may be exchanged."""
    if swaps and len(inputs) != 2:
        raise TypeError(f"{ops}: only two inputs can be exchanged, not {len(inputs)}")
    return Op(tuple(ops.split("|")), inputs, "", swaps)


@dataclass
class Match:
    """What a pattern met; false where it did not match, with the reason."""

    tensors: dict[str, gs.Tensor] = field(default_factory=dict)
    nodes: dict[str, gs.Node] = field(default_factory=dict)
    inner: list[gs.Node] = field(default_factory=list)
    """All matched nodes, outermost first, each once."""
    reason: str = ""

    def __bool__(self) -> bool:
        return not self.reason

    def __getitem__(self, name: str) -> gs.Tensor:
        return self.tensors[name]

    def get(self, name: str) -> gs.Tensor | None:
        """The tensor captured under `name`, None where an optional input was left out."""
        return self.tensors.get(name)

    def _with(self, node: gs.Node, name: str) -> Match:
        """A copy that has met `node`, too."""
        inner = list(self.inner)
        if not any(known is node for known in inner):
            inner.append(node)
        nodes = {**self.nodes, name: node} if name else self.nodes
        return Match(dict(self.tensors), nodes, inner)


def match(node: gs.Node, pattern: Op) -> Match:
    """Match `pattern` with its outermost operator at `node`."""
    search = _Search()
    return next(search.at(node, pattern, Match()), None) or Match(reason=search.reason)


class _Search:
    """All ways to match, and why the one that came furthest failed."""

    def __init__(self) -> None:
        self.reason = ""
        self._furthest = -1

    def _fail(self, state: Match, reason: str) -> None:
        met = len(state.inner) + len(state.tensors)
        if met > self._furthest:
            self._furthest, self.reason = met, reason

    def at(self, node: gs.Node, pattern: Op, state: Match) -> Iterator[Match]:
        """Every way in which `pattern` fits at `node`, given what `state` has met."""
        domain = domain_of(node)
        if (f"{domain}::{node.op}" if domain else node.op) not in pattern.ops:
            self._fail(state, f"{describe(node)} is not {' or '.join(pattern.ops)}")
            return
        known = state.nodes.get(pattern.name, node)
        if known is not node:
            self._fail(state, f"{describe(known)} and {describe(node)} must be the same node")
            return
        given = [t if t.name else None for t in node.inputs]
        while given and given[-1] is None:
            given.pop()
        wanted = pattern.inputs
        if len(given) > len(wanted):
            self._fail(
                state,
                f"{describe(node)} has {len(given)} inputs, {len(wanted)} at most are expected",
            )
            return
        given += [None] * (len(wanted) - len(given))
        for order in (wanted, wanted[::-1]) if pattern.swaps else (wanted,):
            yield from self._inputs(node, given, order, 0, state._with(node, pattern.name))

    def _inputs(
        self,
        node: gs.Node,
        given: list[gs.Tensor | None],
        wanted: tuple[Op | str, ...],
        start: int,
        state: Match,
    ) -> Iterator[Match]:
        """Every way to fit the inputs from `start` on; `state` belongs to this attempt."""
        for index in range(start, len(wanted)):
            want, tensor = wanted[index], given[index]
            if isinstance(want, Op):
                maker = None if tensor is None else producer(tensor)
                if maker is None or maker.outputs[0] is not tensor:
                    ops = " or ".join(want.ops)
                    self._fail(state, f"input {index} of {describe(node)} is not made by {ops}")
                    return
                for met in self.at(maker, want, state):
                    yield from self._inputs(node, given, wanted, index + 1, met)
                return
            if tensor is None:
                if want.startswith("?"):
                    continue
                self._fail(state, f"input {index} of {describe(node)} is missing")
                return
            known = state.tensors.setdefault(want.removeprefix("?"), tensor)
            if known is not tensor and not _equal(known, tensor):
                self._fail(
                    state, f"'{known.name}' and '{tensor.name}' differ, but must be the same"
                )
                return
        yield state


def _equal(a: gs.Tensor, b: gs.Tensor) -> bool:
    """Two constants with the same value are one: exporters merge and split them at will."""
    left, right = array(a), array(b)
    return (
        left is not None
        and right is not None
        and left.dtype == right.dtype
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
    )


__all__ = ["Match", "Op", "match", "op"]
