"""Which tensors of a float ONNX graph a target quantizes, by the rules of its `Placement`.

An op that wants quantized inputs asks for the tensors it reads; ops that only move values are
looked through, so a tensor is quantized where it was made, once, for all that read it. Every
place carries the rule that put it there, in words, for those who ask.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.signs import Signs
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.edit import describe
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.op_kind import gelu_of, is_bias_of, kind_of, weight_of
from onnxq.operators.placement import Placement
from onnxq.operators.traits import SEVERAL, WEIGHTED

_FUSED = frozenset({"Relu", "Clip"})
"""Activation functions that training fuses into a layer that nothing else reads."""


@dataclass(frozen=True)
class Place:
    """Tensors that one quantizer serves."""

    tensors: tuple[gs.Tensor, ...]
    """In the order of the graph; more than one only where readers need equal scales."""
    unsigned: bool
    """Whether none of them can be negative, and the target has another type for those."""
    rule: str
    """What asked for it."""


class QuantizerPlaces:
    """A float graph seen through a placement; a snapshot that later edits do not update."""

    def __init__(self, model: Model, placement: Placement) -> None:
        if model.nodes(*QUANTIZERS):
            raise ValueError("places are found in float graphs: remove the quantizers first")
        self.model = model
        self.placement = placement
        self._nodes = model.nodes()
        self._order = {id(node): at for at, node in enumerate(self._nodes)}
        self._sources: dict[int, tuple[gs.Tensor, ...]] = {}
        self._signs = Signs()
        self._settled_from: set[tuple[int, str]] = set()
        self._gelu: dict[int, gs.Tensor] = {}
        """Input of each Gelu that is spelled out, by its last node."""
        self._inside: set[int] = set()
        """The other nodes of such a Gelu: nothing is quantized within."""
        for erf in model.nodes("Erf"):
            found = gelu_of(erf)
            if found is not None:
                x, nodes = found
                self._gelu[id(nodes[-1])] = x
                self._inside.update(id(node) for node in nodes[:-1])

    def weights(self) -> Iterator[tuple[gs.Node, gs.Tensor]]:
        """Layers whose weight is quantized, with the weight."""
        for node in self._nodes:
            weight = weight_of(node)
            if weight is not None and self.kind(node) in self.placement.weights:
                yield node, weight

    def activations(self) -> list[Place]:
        """All quantizers of activations, in the order of the graph."""
        wanted: dict[int, tuple[gs.Tensor, str]] = {}
        self._settled_from.clear()
        for node in self._nodes:
            for tensor in self._inputs_of(node):
                wanted.setdefault(id(tensor), (tensor, f"{describe(node)} reads codes"))
            for tensor in self._outputs_of(node):
                wanted.setdefault(id(tensor), (tensor, f"{describe(node)} writes codes"))
        for tensor, rule in self._at_the_ends():
            wanted.setdefault(id(tensor), (tensor, rule))
        return [
            Place(
                tuple(tensor for tensor, _ in group),
                self.placement.unsigned and all(self._signs.never_negative(t) for t, _ in group),
                group[0][1],
            )
            for group in self._groups(wanted)
        ]

    # -- what a node or a tensor is ------------------------------------------------------------

    def kind(self, node: gs.Node) -> str | None:
        """The op kind of `node`; None also within an op that is spelled out."""
        if id(node) in self._gelu:
            return "Gelu"
        return None if id(node) in self._inside else kind_of(node)

    def _kind_behind(self, tensor: gs.Tensor) -> str:
        """The kind of the op that makes `tensor`; of a layer's bias, that of the layer."""
        maker = _maker(tensor)
        if maker is None:
            return ""
        layer = is_bias_of(maker)
        return self.kind(maker if layer is None else layer) or ""

    def operands(self, node: gs.Node) -> list[gs.Tensor]:
        """The activations that `node` reads."""
        if id(node) in self._gelu:
            return [self._gelu[id(node)]]
        kind, weight = self.kind(node), weight_of(node)
        count = len(node.inputs) if kind in SEVERAL else 2 if kind in WEIGHTED else 1
        if kind == "Embedding" or is_bias_of(node) is not None:
            return []
        read = [t for t in node.inputs[:count] if t.name and t is not weight]
        return [t for t in read if _is_float(t)]

    def sources(self, tensor: gs.Tensor) -> tuple[gs.Tensor, ...]:
        """Where the values of `tensor` were made."""
        known = self._sources
        for found, read in _from_the_ends(tensor, known, self._moved_from):
            if len(read) == 1:
                known[id(found)] = known[id(read[0])]
            else:
                made = [s for t in read for s in known[id(t)]] or [found]
                known[id(found)] = tuple({id(s): s for s in made}.values())
        return known[id(tensor)]

    def _moved_from(self, tensor: gs.Tensor) -> list[gs.Tensor]:
        maker = _maker(tensor)
        moved = maker is not None and self.kind(maker) in self.placement.moves
        return self.operands(maker) if moved else []

    # -- what is asked for ---------------------------------------------------------------------

    def _asks(self, node: gs.Node) -> bool:
        kind = self.kind(node)
        if kind not in self.placement.inputs or is_bias_of(node) is not None:
            return False
        if self.placement.tensors_only and kind in SEVERAL - {"Concat", "MatMul"}:
            return not any(_is_number(t) for t in node.inputs)
        return True

    def _inputs_of(self, node: gs.Node) -> list[gs.Tensor]:
        if not self._asks(node):
            return []
        kind = self.kind(node) or ""
        read = [(t, self.sources(t)) for t in self.operands(node) if not _is_number(t)]
        made_by = {self._kind_behind(s) for _, sources in read for s in sources}
        if any((kind, maker) in self.placement.untouched for maker in made_by):
            return []
        if kind == "Add" and len(read) > 1:
            summed = [i for i, (t, _) in enumerate(read) if self._from_accumulator(t)]
            if summed:
                del read[summed[-1]]
        merged = self.placement.merged
        return [s for _, found in read for s in found if (kind, self._kind_behind(s)) not in merged]

    def _from_accumulator(self, tensor: gs.Tensor) -> bool:
        return self._kind_behind(tensor) in self.placement.accumulated and len(tensor.outputs) == 1

    def _outputs_of(self, node: gs.Node) -> Iterator[gs.Tensor]:
        layer = is_bias_of(node)
        kind = self.kind(node if layer is None else layer)
        if kind not in self.placement.outputs:
            return
        behind = node.outputs[0]
        if layer is None and any(is_bias_of(r) is node for r in behind.outputs):
            return  # its bias is still to be added
        alone = self.placement.tensors_only and layer is None
        if alone and kind in self.placement.inputs and not self._asks(node):
            return
        if _is_float(behind):
            yield from self._settled(behind, kind or "")

    def _settled(self, tensor: gs.Tensor, kind: str) -> Iterator[gs.Tensor]:
        """Where the result is quantized: behind what runs inside the same op."""
        waiting = [(tensor, kind)]  # the next one last
        while waiting:
            tensor, kind = waiting.pop()
            if (id(tensor), kind) in self._settled_from:
                continue  # an earlier layer has asked for all that follows
            self._settled_from.add((id(tensor), kind))
            if not tensor.outputs or self.model.is_output(tensor):
                yield tensor
            behind = []
            for reader in tensor.outputs:
                by = self.kind(reader)
                fused = self.placement.fuse and kind in WEIGHTED and len(tensor.outputs) == 1
                if by in self.placement.absorbed or (fused and by in _FUSED):
                    behind.append((reader.outputs[0], by or ""))
                elif (by or "", kind) not in self.placement.merged:
                    yield tensor
            waiting += reversed(behind)

    def _at_the_ends(self) -> Iterator[tuple[gs.Tensor, str]]:
        if self.placement.graph_inputs:
            for tensor in self.model.graph.inputs:
                if tensor.outputs and _is_float(tensor):
                    yield tensor, "it enters the network"
        if self.placement.graph_outputs:
            for tensor in self.model.graph.outputs:
                if _is_float(tensor):
                    for source in self.sources(tensor):
                        if _maker(source) is not None:
                            yield source, "it leaves the network"

    # -- what is shared ------------------------------------------------------------------------

    def _groups(
        self, wanted: dict[int, tuple[gs.Tensor, str]]
    ) -> list[list[tuple[gs.Tensor, str]]]:
        known = dict(wanted)
        group_of = {key: [key] for key in wanted}
        for node in self._nodes:
            if self.kind(node) not in self.placement.unified:
                continue
            read = {id(s): s for t in self.operands(node) for s in self.sources(t)}
            if not any(key in group_of for key in read):
                continue
            for key, source in read.items():
                known.setdefault(key, (source, f"{describe(node)} needs equal scales"))
            _join([group_of.setdefault(key, [key]) for key in read], group_of)
        unique = {id(group): group for group in group_of.values()}.values()
        seen = {key: number for number, key in enumerate(known)}

        def at(key: int) -> tuple[int, int]:
            return self._at(known[key][0]), seen[key]

        ordered = sorted((sorted(group, key=at) for group in unique), key=lambda g: at(g[0]))
        return [[known[key] for key in group] for group in ordered]

    def _at(self, tensor: gs.Tensor) -> int:
        maker = _maker(tensor)
        return -1 if maker is None else self._order[id(maker)]


def _from_the_ends(
    tensor: gs.Tensor, known: Container[int], read: Callable[[gs.Tensor], list[gs.Tensor]]
) -> Iterator[tuple[gs.Tensor, list[gs.Tensor]]]:
    """What `tensor` is made of, each tensor that is not `known` once, after those it `read`s.

    Whoever asks makes each of them known. Not by recursion: chains may be longer than Python's
    stack.
    """
    waiting: list[tuple[gs.Tensor, list[gs.Tensor] | None]] = [(tensor, None)]
    while waiting:
        found, needed = waiting.pop()
        if needed is not None:
            yield found, needed
        elif id(found) not in known:
            needed = read(found)
            waiting.append((found, needed))
            waiting += [(t, None) for t in needed if id(t) not in known]


def _join(groups: list[list[int]], group_of: dict[int, list[int]]) -> None:
    """Make several groups one: the largest takes the others in, so that each key moves seldom."""
    whole = max(groups, key=len)
    for group in groups:
        if group is not whole and group_of[group[0]] is group:
            whole += group
            group_of.update(dict.fromkeys(group, whole))


def _maker(tensor: gs.Tensor) -> gs.Node | None:
    return tensor.inputs[0] if tensor.inputs else None


def _is_float(tensor: gs.Tensor) -> bool:
    """Whether `tensor` may hold real numbers; one whose type is not known does."""
    return tensor.dtype is None or bool(np.issubdtype(np.dtype(tensor.dtype), np.floating))


def _is_number(tensor: gs.Tensor) -> bool:
    values = array(tensor)
    return values is not None and values.size == 1
