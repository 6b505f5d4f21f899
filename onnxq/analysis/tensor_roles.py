"""The roles of a model's float tensors for their consumers: weight, bias or activation.

Side files name tensors and often nothing more. The graph shows the rest: a constant is a
parameter, the second input of a linear layer is its weight, and the layer determines along which
axis the weight's output channels lie.
"""

from __future__ import annotations

from functools import cached_property

import onnx_graphsurgeon as gs

from onnxq.analysis.float_graph import FloatGraph
from onnxq.canonical.quantizers import is_quantizer
from onnxq.edit import users
from onnxq.errors import LoadError
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import array, is_constant
from onnxq.operators.weight_axis import BIAS_INPUT, LINEAR_OPS, WeightAxis, weight_axis
from onnxq.quant.qparams import Role
from onnxq.quant.qtypes import QType


class TensorParts:
    """The float tensors of a model by name; a snapshot that later edits do not update."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @cached_property
    def tensors(self) -> dict[str, list[gs.Tensor]]:
        """The tensors that rows of a table may name."""
        return FloatGraph(self.model).tensors

    def find(self, name: str) -> gs.Tensor | None:
        """The tensor of that name; None if there is none."""
        found = self.tensors.get(name)
        return found[0] if found else None

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a constant; None for other tensors."""
        value = array(self.find(name))
        return None if value is None else value.shape

    def is_constant(self, name: str) -> bool:
        """Whether the tensor is known without running the model."""
        return is_constant(self.find(name))

    def role(self, name: str, kind: QType) -> Role:
        """The role of a row for that tensor: accumulators add codes of 32 bits."""
        if kind.bits == 32:
            return Role.BIAS
        return Role.WEIGHT if self.is_constant(name) else Role.ACTIVATION

    def is_layer_parameter(self, name: str) -> bool:
        """Whether a linear layer reads the tensor as its weight or bias, and it is constant."""
        tensor = self.find(name)
        if tensor is None or not is_constant(tensor):
            return False
        return any(
            node.op in LINEAR_OPS
            and not domain_of(node)
            and index in (1, BIAS_INPUT.get(node.op, 1))
            for node, index in self.uses(tensor)
        )

    def uses(self, tensor: gs.Tensor) -> list[tuple[gs.Node, int]]:
        """The uses of a tensor, after its quantizers if it has some."""
        found: list[tuple[gs.Node, int]] = []
        waiting = [tensor]
        while waiting:
            for node, index in users(waiting.pop()):
                if index == 0 and is_quantizer(node):
                    waiting.append(node.outputs[0])
                else:
                    found.append((node, index))
        return found

    def layouts(self, name: str) -> set[WeightAxis]:
        """The ways in which linear layers use the tensor as their weight."""
        tensor, shape = self.find(name), self.shape(name)
        if tensor is None or shape is None:
            return set()
        found = (weight_axis(n, len(shape)) for n, i in self.uses(tensor) if i == 1)
        return {layout for layout in found if layout is not None}

    def channel_axis(self, name: str) -> int:
        """The axis of one scale per channel, for files that do not specify it.

        0 for a name the graph does not have: such a row is only reported.
        """
        if self.find(name) is None:
            return 0
        axes = {layout.axis for layout in self.layouts(name)}
        shape = self.shape(name)
        if len(axes) == 1:
            return axes.pop()
        if not axes and shape is not None and len(shape) == 1:
            return 0
        why = "its consumers disagree on it" if axes else "no linear layer has it as its weight"
        raise LoadError(
            f"tensor '{name}' has several scales along an unknown axis: {why}",
            fix="give one scale, or use a format with an axis (aimet-2.0.0, onnxq)",
        )

    def input_axis(self, name: str) -> int:
        """The axis of a weight that is summed over, along which blocks lie."""
        axis, layouts = self.channel_axis(name), self.layouts(name)
        shape = self.shape(name)
        if not layouts or shape is None or len(shape) < 2:
            raise LoadError(
                f"tensor '{name}' has one scale per block, but is not the weight of a layer",
                fix="use a format with an axis (aimet-2.0.0, onnxq)",
            )
        # Conv (O, I), ConvTranspose (I, O), Gemm either way: the other one of the first two.
        # MatMul (..., K, N): the one before the last.
        return axis - 1 if axis >= 1 else 1
