"""The tensors of a float ONNX graph that a target quantizes, by the rules of its `Placement`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.placement_walk import PlacementWalk
from onnxq.analysis.signs import Signs
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.edit import describe, producer
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.op_kind import gelu_of, is_bias_of, kind_of, weight_of
from onnxq.operators.placement import Placement
from onnxq.operators.traits import SEVERAL, WEIGHTED

_FUSED = frozenset({"Relu", "Clip"})
"""Activation functions that training fuses into a layer whose only consumer they are."""


class QuantizerPlaces(PlacementWalk[gs.Node, gs.Tensor]):
    """A float graph seen through a placement; a snapshot that later edits do not update."""

    def __init__(
        self, model: Model, placement: Placement, left_float: Iterable[gs.Node] = ()
    ) -> None:
        """Look at `model`; nothing is quantized for the nodes of `left_float`.

        Activation functions that run inside them stay float with them.
        """
        super().__init__(placement)
        self._left_float = {id(node) for node in left_float}
        if model.nodes(*QUANTIZERS):
            raise ValueError("places are found in float graphs: remove the quantizers first")
        self.model = model
        self._nodes = model.nodes()
        self._signs = Signs()
        self._gelu: dict[int, gs.Tensor] = {}
        """Input of each Gelu that is written as several nodes, by its last node."""
        self._inside: set[int] = set()
        """The other nodes of such a Gelu: nothing is quantized within."""
        for erf in model.nodes("Erf"):
            found = gelu_of(erf)
            if found is not None:
                x, nodes = found
                self._gelu[id(nodes[-1])] = x
                self._inside.update(id(node) for node in nodes[:-1])
        for node in self._nodes if self._left_float else ():
            if id(node) in self._left_float and node.outputs:
                self._left_float |= {
                    id(user)
                    for user in node.outputs[0].outputs
                    if self.runs_inside(user, node.outputs[0])
                }

    def weights(self) -> Iterator[tuple[gs.Node, gs.Tensor]]:
        """Layers whose weight is quantized, with the weight."""
        for node in self._nodes:
            weight = weight_of(node)
            if id(node) in self._left_float:
                continue
            if weight is not None and self.kind(node) in self.placement.weights:
                yield node, weight

    # -- the graph -----------------------------------------------------------------------------

    def ops(self) -> list[gs.Node]:
        return self._nodes

    def label(self, op: gs.Node) -> str:
        return describe(op)

    def kind(self, op: gs.Node) -> str | None:
        """The op kind of `op`; None also within a Gelu of several nodes."""
        if id(op) in self._gelu:
            return "Gelu"
        return None if id(op) in self._inside else kind_of(op)

    def operands(self, op: gs.Node) -> list[gs.Tensor]:
        if id(op) in self._gelu:
            return [self._gelu[id(op)]]
        kind, weight = self.kind(op), weight_of(op)
        count = len(op.inputs) if kind in SEVERAL else 2 if kind in WEIGHTED else 1
        if kind == "Embedding" or is_bias_of(op) is not None:
            return []
        read = [t for t in op.inputs[:count] if t.name and t is not weight and self.is_float(t)]
        # Only an op of several operands can read a number; asking all of a chain costs squares.
        return read if count == 1 else [t for t in read if not _is_number(t)]

    def result(self, op: gs.Node) -> gs.Tensor:
        return op.outputs[0]

    def producer(self, value: gs.Tensor) -> gs.Node | None:
        return producer(value)

    def consumers(self, value: gs.Tensor) -> Sequence[gs.Node]:
        return list(value.outputs)

    def is_float(self, value: gs.Tensor) -> bool:
        """Whether `value` may contain real numbers; it does if its type is not known."""
        return value.dtype is None or bool(np.issubdtype(np.dtype(value.dtype), np.floating))

    def never_negative(self, value: gs.Tensor) -> bool:
        return self._signs.never_negative(value)

    def is_input(self, value: gs.Tensor) -> bool:
        return producer(value) is None

    def inputs(self) -> Iterator[gs.Tensor]:
        yield from (t for t in self.model.graph.inputs if t.outputs and self.is_float(t))

    def outputs(self) -> Iterator[gs.Tensor]:
        yield from (t for t in self.model.graph.outputs if self.is_float(t))

    def is_settled(self, value: gs.Tensor) -> bool:
        return not value.outputs or self.model.is_output(value)

    def reads_numbers(self, op: gs.Node) -> bool:
        return any(map(_is_number, op.inputs))

    # -- what is particular to ONNX ------------------------------------------------------------

    def kind_behind(self, value: gs.Tensor) -> str:
        """The kind of the op that produces `value`; for the sum with a bias, that of the layer."""
        op = producer(value)
        layer = None if op is None else is_bias_of(op)
        return super().kind_behind(value if layer is None else layer.outputs[0])

    def asks(self, op: gs.Node) -> bool:
        return id(op) not in self._left_float and is_bias_of(op) is None and super().asks(op)

    def written(self, op: gs.Node) -> gs.Tensor | None:
        """The result of `op`; None if its bias is still to be added or it stays float."""
        if id(op) in self._left_float:
            return None
        if not op.outputs or any(is_bias_of(user) is op for user in op.outputs[0].outputs):
            return None
        return op.outputs[0]

    def runs_inside(self, op: gs.Node, value: gs.Tensor) -> bool:
        """Whether `op` runs inside the op that produces `value`, or training fuses it."""
        alone = self.placement.fuse and len(value.outputs) == 1
        fused = alone and self.kind(op) in _FUSED and self.kind_behind(value) in WEIGHTED
        return fused or super().runs_inside(op, value)


def _is_number(tensor: gs.Tensor) -> bool:
    values = array(tensor)
    return values is not None and values.size == 1
