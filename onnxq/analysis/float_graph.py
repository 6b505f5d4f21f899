"""A canonical model seen from the float graph beneath its quantizers.

Removing all quantizers (`remove-fake-quant`) leaves a float graph. Rows of a table refer to that
graph: `row.tensor` is the name a float tensor has there, `row.readers` are uses in it. This module
finds both while the quantizers are still in place.

The quantizers of one float tensor form a tree: x → FQ → FQ → consumer is a requantization, two FQ
nodes that read x serve different consumers. A *use* is a (node, input number) or a graph output at
a leaf of the tree; every quantizer has the uses below it.

    a node produces x, x → FQ → y, y a graph output     the producer takes the name: y
    the same, but x is an input, a constant, another    x keeps its name, FQ becomes
    graph output, or from another graph                 Identity(x) → y: a use of x named y

The order of trees, quantizers and uses depends on the float graph alone, so it is the same before
quantizers are removed and after they are put back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import QUANTIZERS, is_quantizer
from onnxq.edit import producer, users
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.quant.qparams import GRAPH_OUTPUT, Reader, Role


@dataclass(eq=False, slots=True)
class Use:
    """One use of a float tensor."""

    place: tuple[int, int]
    """Sorts uses: number of the reading node and of its input; graph outputs come last."""
    node: gs.Node | None
    """The consumer; None if the tensor leaves the graph under its own name."""
    index: int
    leaves: gs.Tensor | None
    """The graph output this use is, None for a node."""
    via: Quantizer | None
    """The last quantizer before the use."""

    @property
    def tensor(self) -> gs.Tensor:
        """The tensor that is read now: the float tensor or the output of `via`."""
        if self.leaves is not None:
            return self.leaves
        assert self.node is not None
        return self.node.inputs[self.index]


@dataclass(eq=False, slots=True)
class Quantizer:
    """One FakeQuantize and the uses of the float tensor that it serves."""

    node: gs.Node
    parent: Quantizer | None
    depth: int
    uses: list[Use] = field(default_factory=list)

    def path(self) -> list[Quantizer]:
        """The quantizers from the float tensor to this one."""
        found: list[Quantizer] = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]


@dataclass(eq=False, slots=True)
class FloatTensor:
    """A tensor of the float graph, all its uses, and the quantizers between."""

    tensor: gs.Tensor
    uses: list[Use] = field(default_factory=list)
    quantizers: list[Quantizer] = field(default_factory=list)
    """Those with uses; parents before children."""
    unread: list[Quantizer] = field(default_factory=list)
    heir: Quantizer | None = None
    """The quantizer whose output, a graph output, gives the float tensor its name."""

    @property
    def role(self) -> Role:
        """Constants are weights."""
        return Role.WEIGHT if is_constant(self.tensor) else Role.ACTIVATION


class FloatGraph:
    """The float tensors of a model; a snapshot that later edits do not update."""

    def __init__(self, model: Model) -> None:
        self.model = model
        nodes = model.nodes()
        self._place = {id(node): place for place, node in enumerate(nodes)}
        self._exits: dict[int, int] = {}
        for graph in model.graphs():
            for tensor in graph.outputs:
                self._exits.setdefault(id(tensor), len(self._exits))
        roots: dict[int, gs.Tensor] = {}
        for node in nodes:
            if is_quantizer(node) and producer(node.inputs[0], *QUANTIZERS) is None:
                roots.setdefault(id(node.inputs[0]), node.inputs[0])
        self.quantized = [self.of(root) for root in roots.values()]
        """Every float tensor with a quantizer, in the order of the first quantized use."""
        last = (len(nodes), len(self._exits))
        self.quantized.sort(key=lambda t: t.quantizers[0].uses[0].place if t.quantizers else last)
        self._names = {
            id(t.tensor): t.heir.node.outputs[0].name for t in self.quantized if t.heir is not None
        }
        self._nodes = nodes

    def name(self, tensor: gs.Tensor) -> str:
        """The name of `tensor` in the float graph."""
        return self._names.get(id(tensor)) or str(tensor.name)

    def reader(self, use: Use) -> Reader:
        """The name of a use in the float graph."""
        if use.node is None:
            return GRAPH_OUTPUT
        made = next((t for t in use.node.outputs if t.name), None)
        return Reader(use.node.name if made is None else self.name(made), use.index)

    def of(self, root: gs.Tensor) -> FloatTensor:
        """The uses and quantizers of one float tensor."""
        found = FloatTensor(root)
        stack: list[tuple[gs.Tensor, Quantizer | None]] = [(root, None)]
        exits: list[tuple[gs.Tensor, Quantizer | None]] = []
        quantizers: list[Quantizer] = []
        while stack:
            tensor, via = stack.pop()
            for node, index in users(tensor):
                if index == 0 and is_quantizer(node):
                    child = Quantizer(node, via, 0 if via is None else via.depth + 1)
                    quantizers.append(child)
                    stack.append((node.outputs[0], child))
                else:
                    place = (self._place[id(node)], index)
                    found.uses.append(Use(place, node, index, None, via))
            if id(tensor) in self._exits:
                exits.append((tensor, via))
        found.heir = self._heir(root, exits)
        for tensor, via in exits:
            if via is None or via is found.heir:
                place = (len(self._place), self._exits[id(tensor)])
                found.uses.append(Use(place, None, 0, tensor, via))
            else:
                found.uses.append(Use((self._place[id(via.node)], 0), via.node, 0, tensor, via))
        found.uses.sort(key=lambda use: use.place)
        for use in found.uses:
            above = use.via
            while above is not None:
                above.uses.append(use)
                above = above.parent
        found.quantizers = [q for q in quantizers if q.uses]
        found.quantizers.sort(key=lambda q: (q.uses[0].place, q.depth))
        found.unread = [q for q in quantizers if not q.uses]
        return found

    def _heir(
        self, root: gs.Tensor, exits: list[tuple[gs.Tensor, Quantizer | None]]
    ) -> Quantizer | None:
        """The quantizer that names the float tensor: of the nearest, that of the first output."""
        made_by = producer(root)
        if made_by is None or id(root) in self._exits:
            return None
        claims = [
            (via.depth, self._exits[id(tensor)], via)
            for tensor, via in exits
            if via is not None and via.node.owner is made_by.owner
        ]
        return min(claims, key=lambda claim: claim[:2], default=(0, 0, None))[2]

    @cached_property
    def tensors(self) -> dict[str, list[gs.Tensor]]:
        """The float tensors by name; two bodies may use one name."""
        found: list[gs.Tensor] = []
        for graph in self.model.graphs():
            found += [*graph.inputs, *graph.record.constants]
        for node in self._nodes:
            found += [t for t in node.inputs if isinstance(t, gs.Constant)]
            found += [] if is_quantizer(node) else node.outputs
        named: dict[str, list[gs.Tensor]] = {}
        for tensor in {id(tensor): tensor for tensor in found if tensor.name}.values():
            named.setdefault(self.name(tensor), []).append(tensor)
        return named
