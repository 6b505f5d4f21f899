"""The tensors that a target quantizes, by the rules of its `Placement`, in a graph of any kind.

An op that wants quantized inputs asks for the tensors it reads. Ops that only move values are
looked through, so a tensor is quantized at its producer, once, for all its consumers. Every place
carries the rule that put it there, in words.

`PlacementWalk` contains the rules. A class derived from it knows one kind of graph: its ops, and
the tensors they read and produce.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from onnxq.operators.placement import Placement
from onnxq.operators.traits import SEVERAL

Op = TypeVar("Op")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Place(Generic[Op, Value]):
    """Tensors that one quantizer serves."""

    tensors: tuple[Value, ...]
    """In the order of the graph; more than one only if consumers need equal scales."""
    unsigned: bool
    """Whether none of them can be negative, and the target has another type for those."""
    rule: str
    """The reason for it, in words."""
    asked_by: tuple[Op, ...] = ()
    """The consumers and producers that asked for it."""


class PlacementWalk(ABC, Generic[Op, Value]):
    """A graph seen through a placement; a snapshot that later edits do not update."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._sources: dict[int, tuple[Value, ...]] = {}
        self._joined: set[int] | None = None

    # -- the graph -----------------------------------------------------------------------------

    @abstractmethod
    def ops(self) -> Iterable[Op]:
        """The ops that may ask, producers first."""

    @abstractmethod
    def kind(self, op: Op) -> str | None:
        """The op kind of `op`; None if no rule names it."""

    @abstractmethod
    def operands(self, op: Op) -> list[Value]:
        """The activations that `op` reads."""

    @abstractmethod
    def result(self, op: Op) -> Value:
        """The first output of `op`."""

    @abstractmethod
    def producer(self, value: Value) -> Op | None:
        """The op that produces `value`."""

    @abstractmethod
    def consumers(self, value: Value) -> Sequence[Op]:
        """The ops that read `value`."""

    @abstractmethod
    def is_float(self, value: Value) -> bool:
        """Whether `value` contains real numbers."""

    @abstractmethod
    def never_negative(self, value: Value) -> bool:
        """Whether `value` has no number below zero."""

    @abstractmethod
    def is_input(self, value: Value) -> bool:
        """Whether `value` enters the network."""

    @abstractmethod
    def inputs(self) -> Iterable[Value]:
        """The values that enter the network and are read in it."""

    @abstractmethod
    def outputs(self) -> Iterable[Value]:
        """The values that leave the network."""

    @abstractmethod
    def reads_numbers(self, op: Op) -> bool:
        """Whether a plain number is among the operands of `op`."""

    # -- what may differ between graphs --------------------------------------------------------

    def label(self, op: Op) -> str:
        """The name of `op`, for the rule of a place."""
        return str(op)

    def is_settled(self, value: Value) -> bool:
        """Whether `value` is wanted as it is, even if all its consumers run inside its op."""
        return False

    def kind_behind(self, value: Value) -> str:
        """The kind of the op that produces `value`; '' if no rule names it."""
        op = self.producer(value)
        return "" if op is None else self.kind(op) or ""

    def asks(self, op: Op) -> bool:
        """Whether `op` wants quantized inputs."""
        kind = self.kind(op)
        if kind not in self.placement.inputs or not self._takes_part(op):
            return False
        numbers = self.placement.tensors_only and kind in SEVERAL - {"Concat", "MatMul"}
        return not (numbers and self.reads_numbers(op))

    def written(self, op: Op) -> Value | None:
        """The result of `op`, if its kind writes codes; None if it is not the end of a layer."""
        return self.result(op)

    def runs_inside(self, op: Op, value: Value) -> bool:
        """Whether `op` runs inside the op that produces `value`."""
        return self.kind(op) in self.placement.absorbed

    def from_accumulator(self, value: Value) -> bool:
        """Whether the only consumer of `value` takes it from the sums of its producer."""
        made_by = self.kind_behind(value)
        return made_by in self.placement.accumulated and len(self.consumers(value)) == 1

    # -- the rules -----------------------------------------------------------------------------

    def sources(self, value: Value) -> tuple[Value, ...]:
        """The values from which ops that only move numbers made `value`.

        Not by recursion: chains may be longer than Python's stack.
        """
        known = self._sources
        waiting: list[tuple[Value, list[Value] | None]] = [(value, None)]
        while waiting:
            found, read = waiting.pop()
            if id(found) in known:
                continue
            if read is None:
                op = self.producer(found)
                moved = op is not None and self.kind(op) in self.placement.moves
                read = self.operands(op) if op is not None and moved else []
                waiting.append((found, read))
                waiting += [(v, None) for v in read if id(v) not in known]
            elif read:
                made = [s for v in read for s in known[id(v)]]
                known[id(found)] = tuple({id(s): s for s in made}.values())
            else:
                known[id(found)] = (found,) if self.is_float(found) else ()
        return known[id(value)]

    def activations(self) -> list[Place[Op, Value]]:
        """All quantizers of activations, in the order of the graph."""
        if self.placement.joining and self._joined is None:
            self._join()
        wanted: dict[int, tuple[Value, str]] = {}
        asked_by: dict[int, list[Op]] = {}
        for value, op, rule in self._requests():
            wanted.setdefault(id(value), (value, rule))
            asked_by.setdefault(id(value), []).extend([] if op is None else [op])
        return [
            Place(
                tuple(value for value, _ in group),
                self.placement.unsigned and all(self.never_negative(v) for v, _ in group),
                group[0][1],
                tuple(op for value, _ in group for op in asked_by.get(id(value), ())),
            )
            for group in self._groups(wanted)
        ]

    def _requests(self) -> Iterator[tuple[Value, Op | None, str]]:
        """Every value to quantize, with the op that asks for it, and why."""
        settled: set[int] = set()
        for op in self.ops():
            for value in self._inputs_of(op):
                yield value, op, f"{self.label(op)} reads codes"
            for value in self._outputs_of(op, settled):
                yield value, op, f"{self.label(op)} writes codes"
        if self.placement.graph_inputs:
            yield from ((v, None, "it enters the network") for v in self.inputs())
        if self.placement.graph_outputs:
            for value in self.outputs():
                for source in self.sources(value):
                    if not self.is_input(source):
                        yield source, None, "it leaves the network"

    def _inputs_of(self, op: Op) -> list[Value]:
        if not self.asks(op):
            return []
        kind = self.kind(op) or ""
        read = [(value, self.sources(value)) for value in self.operands(op)]
        made_by = {self.kind_behind(s) for _, sources in read for s in sources}
        if any((kind, producer) in self.placement.untouched for producer in made_by):
            return []
        if kind == "Add" and len(read) > 1:
            summed = [i for i, (value, _) in enumerate(read) if self.from_accumulator(value)]
            if summed:
                del read[summed[-1]]
        merged = self.placement.merged
        return [s for _, found in read for s in found if (kind, self.kind_behind(s)) not in merged]

    def _outputs_of(self, op: Op, settled: set[int]) -> Iterator[Value]:
        """The values at which the result of `op` is quantized: after ops that run inside it."""
        taking_part = self.placement.outputs and self._takes_part(op)
        value = self.written(op) if taking_part else None
        kind = "" if value is None else self.kind_behind(value)
        if value is None or kind not in self.placement.outputs or not self.is_float(value):
            return
        own = kind == self.kind(op) and kind in self.placement.inputs
        if self.placement.tensors_only and own and not self.asks(op):
            return
        waiting = [value]  # the next one last
        while waiting:
            value = waiting.pop()
            if id(value) in settled:
                continue  # an earlier op has asked for all that follows
            settled.add(id(value))
            if self.is_settled(value):
                yield value
            inside = []
            made_by = self.kind_behind(value)
            for consumer in self.consumers(value):
                if self.runs_inside(consumer, value):
                    inside.append(self.result(consumer))
                elif (self.kind(consumer) or "", made_by) not in self.placement.merged:
                    yield value
            waiting += reversed(inside)

    # -- ops that only join others ----------------------------------------------------------------

    def _takes_part(self, op: Op) -> bool:
        """Whether `op` runs in integers; only of `joining` ops that depends on others."""
        if self.kind(op) not in self.placement.joining or self._joined is None:
            return True
        return id(op) in self._joined

    def _join(self) -> None:
        """Find the joining ops that stay: all, without those that lack codes on either side.

        Taking one out may take its neighbours out, so these are looked at again.
        """
        reads: dict[int, list[int]] = {}
        writes: dict[int, list[int]] = {}
        read_by: dict[int, list[Op]] = {}
        writer: dict[int, Op] = {}
        wanted: set[int] = set()
        coded: set[int] = set()
        joining: dict[int, Op] = {}
        settled: set[int] = set()
        for op in self.ops():
            read = [id(v) for v in self._inputs_of(op)]
            written = [id(v) for v in self._outputs_of(op, settled)]
            if self.kind(op) not in self.placement.joining:
                wanted.update(read)
                coded.update(read, written)
                continue
            joining[id(op)] = op
            reads[id(op)], writes[id(op)] = read, written
            writer.update(dict.fromkeys(written, op))
            for value in read:
                read_by.setdefault(value, []).append(op)
        pending = list(joining.values())
        while pending:
            op = pending.pop()
            key = id(op)
            if key not in joining:
                continue
            given = all(
                v in coded or (v in writer and id(writer[v]) in joining) for v in reads[key]
            )
            taken = any(
                v in wanted or any(id(r) in joining and r is not op for r in read_by.get(v, ()))
                for v in writes[key]
            )
            if not (reads[key] and given and taken):
                del joining[key]
                pending += [writer[v] for v in reads[key] if v in writer]
                pending += [r for v in writes[key] for r in read_by.get(v, ())]
        self._joined = set(joining)

    def _groups(self, wanted: dict[int, tuple[Value, str]]) -> list[list[tuple[Value, str]]]:
        """The values that share a quantizer; each group and all groups in the graph's order."""
        known = dict(wanted)
        group_of = {key: [key] for key in wanted}
        for op in self.ops():
            if self.kind(op) not in self.placement.unified:
                continue
            read = {id(s): s for value in self.operands(op) for s in self.sources(value)}
            if not any(key in group_of for key in read):
                continue
            for key, source in read.items():
                known.setdefault(key, (source, f"{self.label(op)} needs equal scales"))
            _unite([group_of.setdefault(key, [key]) for key in read], group_of)
        unique = {id(group): group for group in group_of.values()}.values()
        seen = {key: number for number, key in enumerate(known)}
        position = {id(op): number for number, op in enumerate(self.ops())}

        def at(key: int) -> tuple[int, int]:
            return position.get(id(self.producer(known[key][0])), -1), seen[key]

        ordered = sorted((sorted(group, key=at) for group in unique), key=lambda g: at(g[0]))
        return [[known[key] for key in group] for group in ordered]


def _unite(groups: list[list[int]], group_of: dict[int, list[int]]) -> None:
    """Make several groups one: the largest takes in the others, so each key moves seldom."""
    whole = max(groups, key=len)
    for group in groups:
        if group is not whole and group_of[group[0]] is group:
            whole += group
            group_of.update(dict.fromkeys(group, whole))
