"""The tensors of an FX graph that are quantized, by the rules of a `Placement`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import fx, nn

from onnxq.analysis.placement_walk import PlacementWalk
from onnxq.operators.placement import Placement
from onnxq.operators.traits import KEEPS_SIGN, SEVERAL, WEIGHTED
from onnxq.quant.settings import LayerSettings, joined
from torch_bridge.capture.argument_checks import Required
from torch_bridge.capture.value_types import SHAPE, is_float
from torch_bridge.insertion.layer_choices import LayerChoices
from torch_bridge.insertion.op_kinds import ends_not_negative, kind_of
from torch_bridge.insertion.product_functions import MASKS
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
    chosen: LayerSettings = field(default_factory=LayerSettings)
    """What rules say about those who read them, with the bits of first and last layers."""
    rows: int | None = None
    """The axis that a Softmax sums over, if one reads them."""


class Rules(PlacementWalk[fx.Node, fx.Node]):
    """The nodes of a graph, as the rules of a placement see them."""

    def __init__(
        self,
        graph_module: fx.GraphModule,
        placement: Placement,
        exclude: Selection | None = None,
        include: Selection | None = None,
        choices: LayerChoices | None = None,
    ) -> None:
        super().__init__(placement)
        self.graph = graph_module.graph
        self.modules = dict(graph_module.named_modules(remove_duplicate=False))
        self.exclude = exclude or Selection()
        self.include = include or Selection()
        self.choices = choices or LayerChoices()
        self._varying = self._of_inputs()
        self.of_weights = self._of_weights()
        """Nodes that serve weights alone: w * gain in F.conv2d(x, w * gain), and w itself."""

    # -- properties of nodes --------------------------------------------------------------------

    def kind(self, op: fx.Node) -> str | None:
        kind = kind_of(op, self.modules)
        if kind == "MatMul" and self._constant_factor(op) is not None:
            return "Linear"
        return kind

    def weight_operand(self, node: fx.Node) -> fx.Node | None:
        """The weight of a functional layer (F.conv2d ...), if it depends on no input."""
        if node.op == "call_module" or self.kind(node) not in WEIGHTED | {"Embedding"}:
            return None
        weight = _operand(node, 1, "weight")
        if weight is None:
            return self._constant_factor(node)
        return weight if isinstance(weight, fx.Node) and weight not in self._varying else None

    def _constant_factor(self, product: fx.Node) -> fx.Node | None:
        """The right factor of x @ w, if it depends on no input."""
        factors = product.all_input_nodes
        if product.target is torch.einsum or len(factors) != 2:
            return None
        return factors[1] if factors[1] not in self._varying else None

    def weight_axis(self, node: fx.Node) -> int | None:
        """The axis of output channels in the weight of a functional layer."""
        if kind_of(node, self.modules) == "MatMul":
            weight = self.weight_operand(node)
            rank = 0 if weight is None else len(weight.meta.get(SHAPE, ()))
            return 1 if rank == 2 else None  # kernels have no channels in a stack of matrices
        return {"ConvTranspose": 1, "Embedding": None}.get(self.kind(node) or "", 0)

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

    def operands(self, op: fx.Node) -> list[fx.Node]:
        kind = self.kind(op)
        if kind in WEIGHTED and op.op != "call_module":
            named = [_operand(op, 0, "input"), _operand(op, 1, "weight")]
            given = named if None not in named else op.all_input_nodes
            nodes = [n for n in given if isinstance(n, fx.Node)]
            return [n for n in nodes if is_float(n) and n is not self.weight_operand(op)]
        read = [n for n in op.all_input_nodes if n is not self.weight_operand(op)]
        found = [n for n in read if is_float(n) or self.kind(n) == "Split"]
        return found if kind in SEVERAL or kind is None else found[:1]

    @functools.cached_property
    def boundary(self) -> set[fx.Node]:
        """Layers with weights that read an input of the network or compute an output.

        Empty if the placement gives them no bits of their own.
        """
        if self.placement.boundary_bits is None:
            return set()
        made = {s for out in self.outputs() for s in self.sources(out)}
        found = set()
        for node in self.graph.nodes:
            if self.kind(node) not in WEIGHTED:
                continue
            read = {s for operand in self.operands(node) for s in self.sources(operand)}
            if node in made or any(self.is_input(source) for source in read):
                found.add(node)
        return found

    def is_input(self, value: fx.Node) -> bool:
        """Whether `value` is an input of the network or a part of one."""
        if value.op == "placeholder":
            return True
        first = value.args[0] if value.args else None
        if not isinstance(first, fx.Node):
            return False
        if value.op == "call_module" and isinstance(self.modules[str(value.target)], Required):
            return True
        return value.target is operator.getitem and not is_float(first) and self.is_input(first)

    def ops(self) -> list[fx.Node]:
        """All nodes except those that serve weights alone: only the weight itself is quantized."""
        return [node for node in self.graph.nodes if node not in self.of_weights]

    def result(self, op: fx.Node) -> fx.Node:
        return op

    def producer(self, value: fx.Node) -> fx.Node:
        return value

    def consumers(self, value: fx.Node) -> list[fx.Node]:
        return list(value.users)

    def is_float(self, value: fx.Node) -> bool:
        return is_float(value)

    def inputs(self) -> Iterator[fx.Node]:
        for node in filter(self.is_input, self.graph.nodes):
            if is_float(node) and not all(map(self.is_input, node.users)):
                yield node

    def outputs(self) -> list[fx.Node]:
        return [n for n in next(iter(reversed(self.graph.nodes))).all_input_nodes if is_float(n)]

    def reads_numbers(self, op: fx.Node) -> bool:
        return any(isinstance(a, int | float) for a in op.args)

    # -- particular to training -----------------------------------------------------------------

    def spots(self) -> list[Spot]:
        """All quantizers of activations, in the order of the graph.

        Masked scores have none: the numbers that exclude positions would take all codes, and what
        is left of them after rounding would no longer exclude.
        """
        return [
            Spot(
                place.tensors,
                place.unsigned,
                not self.boundary.isdisjoint(place.asked_by),
                joined(map(self.settings, place.asked_by)),
                self._softmax_axis(place.tensors),
            )
            for place in self.activations()
            if not any(tensor.target in MASKS for tensor in place.tensors)
        ]

    def settings(self, op: fx.Node) -> LayerSettings:
        """What rules say about a layer, with the bits of first and last layers."""
        chosen = self.choices.of_node(op)
        if op not in self.boundary:
            return chosen
        return chosen.with_default_bits(self.placement.boundary_bits)

    def _softmax_axis(self, values: Iterable[fx.Node]) -> int | None:
        for user in (user for value in values for user in value.users):
            if self.kind(user) == "Softmax":
                is_module = user.op == "call_module"
                dim = (
                    getattr(self.modules[str(user.target)], "dim", None)
                    if is_module
                    else _operand(user, 1, "dim")
                )
                if isinstance(dim, int):
                    return dim
        return None

    def asks(self, op: fx.Node) -> bool:
        if self.include.has_node(op):
            return True
        return not self.exclude.has_node(op) and not self._is_float_layer(op) and super().asks(op)

    def written(self, op: fx.Node) -> fx.Node | None:
        return None if self.exclude.has_node(op) or self._is_float_layer(op) else op

    def runs_inside(self, op: fx.Node, value: fx.Node) -> bool:
        return super().runs_inside(op, value) and not self.exclude.has_node(op)

    def from_accumulator(self, value: fx.Node) -> bool:
        module = self.modules.get(str(value.target)) if value.op == "call_module" else None
        return getattr(module, "activation", None) is None and super().from_accumulator(value)

    def _is_float_layer(self, node: fx.Node) -> bool:
        """Whether the weight of a layer stays float: a subclass that computes something else."""
        if node.op != "call_module" or self.kind(node) not in WEIGHTED:
            return False
        return not hasattr(self.modules[str(node.target)], "weight_fake_quant")

    def never_negative(self, value: fx.Node) -> bool:
        return value in self._never_negative

    @functools.cached_property
    def _never_negative(self) -> set[fx.Node]:
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
