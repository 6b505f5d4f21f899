"""Copy shared constants: targets want a weight, its scale and its codes for each layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.edit import constant, new_node, op_name, set_inputs, variable
from onnxq.graph import Model
from onnxq.graph.constant_folding import MOVING
from onnxq.graph.constants import array
from onnxq.operators.traits import DEQUANTIZE, QUANTIZE
from onnxq.operators.weight_axis import BIAS_INPUT, LINEAR_OPS
from onnxq.pass_ import Pass, Trace
from onnxq.running.constant_evaluation import known_values

_QUANTIZERS = (*QUANTIZE, *DEQUANTIZE, FAKE_QUANTIZE)
_BETWEEN = {*_QUANTIZERS, *MOVING, "Clip"}
"""Operators allowed between a constant and the layer whose weight it is."""


@dataclass(frozen=True)
class _Branch:
    """The path from a constant to one layer input: `nodes[0]` feeds the layer."""

    layer: gs.Node
    index: int
    nodes: list[gs.Node]
    root: gs.Tensor

    def readers(self) -> Iterator[tuple[gs.Node, int, gs.Tensor]]:
        """(node, input number, tensor) from the layer up to the constant."""
        yield self.layer, self.index, self.layer.inputs[self.index]
        for node in self.nodes:
            yield node, 0, node.inputs[0]


@dataclass(frozen=True)
class SplitSharedWeights(Pass):
    """Give each layer its own copy of a weight or bias that others read too.

    Everything between the constant and the layer (quantizers with their scales and zero points,
    Cast, Transpose ...) is copied along. The copies share one array in memory.
    """

    name: ClassVar[str] = "split-shared-weights"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        branches = [b for node in model.nodes(*LINEAR_OPS) for b in _branches(node)]
        # Last layer first, so that the first one keeps the original; `left` counts the consumers
        # that each tensor will have after the splits decided so far.
        left: dict[int, int] = {}
        splits: list[tuple[_Branch, int]] = []
        for branch in reversed(branches):
            for depth, (_, _, tensor) in enumerate(branch.readers()):
                count = left.get(id(tensor), len(tensor.outputs) + model.is_output(tensor))
                if count > 1:
                    left[id(tensor)] = count - 1
                    splits.append((branch, depth))
                    break
        changes: list[tuple[gs.Node, int, gs.Tensor]] = []
        for branch, depth in reversed(splits):
            if getattr(branch.root, "overridable", False):
                trace.skip(branch.layer, f"'{branch.root.name}' may be replaced by the caller")
                continue
            reader, index, shared = list(branch.readers())[depth]
            own = _copy(model, branch, depth)
            changes.append((reader, index, own))
            trace.rewrote(branch.layer, f"reads '{own.name}' instead of the shared '{shared.name}'")
        set_inputs(changes)


def _branches(layer: gs.Node) -> Iterator[_Branch]:
    for index in (1, BIAS_INPUT.get(layer.op)):
        if index is None or index >= len(layer.inputs):
            continue
        tensor, nodes = layer.inputs[index], []
        while tensor.inputs and op_name(tensor.inputs[0]) in _BETWEEN:
            nodes.append(tensor.inputs[0])
            tensor = tensor.inputs[0].inputs[0]
        if isinstance(tensor, gs.Constant) or known_values(tensor) is not None:
            yield _Branch(layer, index, nodes, tensor)


def _copy(model: Model, branch: _Branch, depth: int) -> gs.Tensor:
    """Copies of the constant and of the nodes from `depth` on, in the graph of the layer."""
    own: dict[int, gs.Tensor] = {}

    def parameter(tensor: gs.Tensor) -> gs.Tensor:
        """A scale or zero point of its own; Q and DQ of one pair go on sharing theirs."""
        if id(tensor) not in own:
            own[id(tensor)] = _share(model, tensor)
        return own[id(tensor)]

    value = _share(model, branch.root)
    for node in reversed(branch.nodes[depth:]):
        others = node.inputs[1:]
        if op_name(node) in _QUANTIZERS:
            others = [parameter(t) for t in others]
        result = variable(model, node.outputs[0].name, like=node.outputs[0])
        copy = new_node(
            model,
            op_name(node),
            [value, *others],
            [result],
            name=node.name or node.outputs[0].name,
            attrs=dict(node.attrs),
            graph=branch.layer.owner,
        )
        copy.source = getattr(node, "source", None)
        value = result
    return value


def _share(model: Model, tensor: gs.Tensor) -> gs.Tensor:
    """A new constant that shares the values of `tensor`; `tensor` itself if it is not constant."""
    stored = known_values(tensor)
    value = array(tensor) if stored is None else stored
    return tensor if value is None else constant(model, tensor.name, value)
