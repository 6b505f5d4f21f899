"""The tensors of a graph that are quantized, by the rules of a `Placement`.

An op that wants quantized inputs asks for the tensors it reads; ops that only move values are
looked through, so the tensor is quantized where it was made, once, for all that read it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import fx, nn

from onnxq.operators.placement import Placement
from onnxq.operators.traits import KEEPS_SIGN, SEVERAL, WEIGHTED
from torch_bridge.capture.argument_checks import Required
from torch_bridge.capture.value_types import is_float
from torch_bridge.insertion.op_kinds import ends_not_negative, kind_of
from torch_bridge.insertion.selectors import Selection


@dataclass(frozen=True)
class Spot:
    """The tensors that share one quantizer."""

    producers: tuple[fx.Node, ...]
    """The nodes that compute them, in the order of the graph."""
    unsigned: bool
    """Whether none of them can be negative, and the target has another type for those."""
    boundary: bool
    """Whether a first or last layer reads one of them."""


class Rules:
    """A graph seen through a placement."""

    def __init__(
        self,
        graph_module: fx.GraphModule,
        placement: Placement,
        exclude: Selection | None = None,
        include: Selection | None = None,
    ) -> None:
        self.graph = graph_module.graph
        self.modules = dict(graph_module.named_modules(remove_duplicate=False))
        self.placement = placement
        self.exclude = exclude or Selection()
        self.include = include or Selection()
        self.order = {node: i for i, node in enumerate(self.graph.nodes)}
        self._varying = self._of_inputs()
        self.of_weights = self._of_weights()
        """Nodes that serve weights alone: w * gain in F.conv2d(x, w * gain), and w itself."""

    # -- what a node is ------------------------------------------------------------------------

    def kind(self, node: fx.Node) -> str | None:
        """The op kind of `node`."""
        return kind_of(node, self.modules)

    def weight_operand(self, node: fx.Node) -> fx.Node | None:
        """The weight of a functional layer (F.conv2d ...), if it depends on no input."""
        if node.op != "call_function" or self.kind(node) not in WEIGHTED | {"Embedding"}:
            return None
        weight = _operand(node, 1, "weight")
        return weight if isinstance(weight, fx.Node) and weight not in self._varying else None

    def _of_inputs(self) -> set[fx.Node]:
        """The nodes that depend on an input of the network."""
        found: set[fx.Node] = set()
        for node in self.graph.nodes:
            if node.op == "placeholder" or not found.isdisjoint(node.all_input_nodes):
                found.add(node)
        return found

    def _of_weights(self) -> set[fx.Node]:
        found: set[fx.Node] = set()
        for node in reversed(self.graph.nodes):
            users = node.users
            if users and all(u in found or self.weight_operand(u) is node for u in users):
                found.add(node)
        return found

    def operands(self, node: fx.Node) -> list[fx.Node]:
        """The activations that `node` reads."""
        kind = self.kind(node)
        if kind in WEIGHTED and node.op == "call_function":
            given = [_operand(node, 0, "input"), _operand(node, 1, "weight")]
            nodes = [n for n in given if isinstance(n, fx.Node)]
            return [n for n in nodes if is_float(n) and n is not self.weight_operand(node)]
        read = [n for n in node.all_input_nodes if n is not self.weight_operand(node)]
        found = [n for n in read if is_float(n) or self.kind(n) == "Split"]
        return found if kind in SEVERAL or kind is None else found[:1]

    def sources(self, node: fx.Node) -> Iterator[fx.Node]:
        """The producers of the values of `node`."""
        seen: set[fx.Node] = set()
        waiting = [node]
        while waiting:
            tensor = waiting.pop(0)
            if tensor in seen:
                continue
            seen.add(tensor)
            read = self.operands(tensor) if self.kind(tensor) in self.placement.moves else []
            if read:
                waiting[:0] = read
            elif is_float(tensor):
                yield tensor

    @functools.cached_property
    def boundary(self) -> set[fx.Node]:
        """Layers with weights that read what enters the network, or make what leaves it.

        Empty where the placement gives them no bits of their own.
        """
        if self.placement.boundary_bits is None:
            return set()
        made = {s for out in self._leaving() for s in self.sources(out)}
        found = set()
        for node in self.graph.nodes:
            if self.kind(node) not in WEIGHTED:
                continue
            read = {s for operand in self.operands(node) for s in self.sources(operand)}
            if node in made or any(self._enters(source) for source in read):
                found.add(node)
        return found

    def _enters(self, node: fx.Node) -> bool:
        """Whether `node` is what enters the network, or a part of it."""
        if node.op == "placeholder":
            return True
        first = node.args[0] if node.args else None
        if not isinstance(first, fx.Node):
            return False
        if node.op == "call_module" and isinstance(self.modules[str(node.target)], Required):
            return True
        return node.target is operator.getitem and not is_float(first) and self._enters(first)

    # -- what is asked for ---------------------------------------------------------------------

    def spots(self) -> list[Spot]:
        """All quantizers of activations, in the order of the graph."""
        wanted: dict[fx.Node, bool] = {}
        for node in self.graph.nodes:
            if node in self.of_weights:  # the weight itself is quantized, at the end
                continue
            for source in (*self._inputs_of(node), *self._outputs_of(node)):
                wanted[source] = wanted.get(source, False) or node in self.boundary
        for source in self._at_the_ends():
            wanted.setdefault(source, False)
        groups = self._groups(wanted)
        return [
            Spot(
                producers=tuple(group),
                unsigned=self.placement.unsigned and self.never_negative.issuperset(group),
                boundary=any(wanted.get(node, False) for node in group),
            )
            for group in groups
        ]

    def _asks(self, node: fx.Node) -> bool:
        if self.include.has_node(node):
            return True
        kind = self.kind(node)
        if kind not in self.placement.inputs or self.exclude.has_node(node):
            return False
        if kind in WEIGHTED and node.op == "call_module":
            # One whose weight stays float (a subclass that computes something else) is float.
            return hasattr(self.modules[str(node.target)], "weight_fake_quant")
        if self.placement.tensors_only and kind in SEVERAL - {"Concat"}:
            return not any(isinstance(a, int | float) for a in node.args)
        return True

    def _inputs_of(self, node: fx.Node) -> list[fx.Node]:
        """The tensors that `node` reads and wants quantized."""
        if not self._asks(node):
            return []
        kind = self.kind(node) or ""
        read = [(operand, list(self.sources(operand))) for operand in self.operands(node)]
        made_by = {self.kind(source) for _, sources in read for source in sources}
        if any((kind, maker) in self.placement.untouched for maker in made_by):
            return []
        if kind == "Add" and len(read) > 1:
            summed = [i for i, (n, _) in enumerate(read) if self._from_accumulator(n)]
            if summed:
                del read[summed[-1]]
        merged = self.placement.merged
        return [s for _, found in read for s in found if (kind, self.kind(s)) not in merged]

    def _from_accumulator(self, node: fx.Node) -> bool:
        if self.kind(node) not in self.placement.accumulated or len(node.users) > 1:
            return False
        module = self.modules.get(str(node.target)) if node.op == "call_module" else None
        return getattr(module, "activation", None) is None

    def _outputs_of(self, node: fx.Node) -> Iterator[fx.Node]:
        """The tensors to quantize for the output of `node`: after what runs inside the same op."""
        kind = self.kind(node)
        if kind not in self.placement.outputs or self.exclude.has_node(node) or not is_float(node):
            return
        if kind in WEIGHTED and node.op == "call_module":
            if not hasattr(self.modules[str(node.target)], "weight_fake_quant"):
                return
        elif self.placement.tensors_only and kind in self.placement.inputs and not self._asks(node):
            return
        yield from self._settled(node)

    def _settled(self, node: fx.Node) -> Iterator[fx.Node]:
        for user in node.users:
            consumer = self.kind(user)
            if consumer in self.placement.absorbed and not self.exclude.has_node(user):
                yield from self._settled(user)
            elif (consumer or "", self.kind(node) or "") not in self.placement.merged:
                yield node

    def _at_the_ends(self) -> Iterator[fx.Node]:
        if self.placement.graph_inputs:
            for node in self.graph.nodes:
                read = [u for u in node.users if not self._enters(u)]
                if self._enters(node) and is_float(node) and read:
                    yield node
        if self.placement.graph_outputs:
            for out in self._leaving():
                yield from (s for s in self.sources(out) if not self._enters(s))

    def _leaving(self) -> list[fx.Node]:
        return [n for n in next(iter(reversed(self.graph.nodes))).all_input_nodes if is_float(n)]

    # -- what is shared ------------------------------------------------------------------------

    def _groups(self, wanted: Iterable[fx.Node]) -> list[list[fx.Node]]:
        """Producers that share a quantizer, each group and all groups in the graph's order."""
        group_of = {node: {node} for node in wanted}
        for node in self.graph.nodes:
            if self.kind(node) not in self.placement.unified:
                continue
            read = {s for operand in self.operands(node) for s in self.sources(operand)}
            if not any(source in group_of for source in read):
                continue
            joined = set().union(*(group_of.get(source, {source}) for source in read))
            for member in joined:
                group_of[member] = joined
        unique = {id(group): group for group in group_of.values()}.values()
        ordered = [sorted(group, key=self.order.__getitem__) for group in unique]
        return sorted(ordered, key=lambda group: self.order[group[0]])

    @functools.cached_property
    def never_negative(self) -> set[fx.Node]:
        """The nodes whose results are never negative."""
        found: set[fx.Node] = set()
        for node in self.graph.nodes:  # producers first
            read = self.operands(node) if self._keeps_sign(node) else []
            if ends_not_negative(node, self.modules) or (read and found.issuperset(read)):
                found.add(node)
        return found

    def _keeps_sign(self, node: fx.Node) -> bool:
        kind = self.kind(node)
        if kind not in KEEPS_SIGN or (kind == "Resize" and "cubic" in _mode(node, self.modules)):
            return False
        given = (*node.args, *node.kwargs.values()) if kind in SEVERAL else ()
        return all(a >= 0 for a in given if isinstance(a, int | float))


def _operand(node: fx.Node, position: int, name: str) -> object:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name)


def _mode(node: fx.Node, modules: dict[str, nn.Module]) -> str:
    if node.op == "call_module":
        return str(getattr(modules[str(node.target)], "mode", ""))
    return str(_operand(node, 3, "mode"))
