"""Guard float layers between quantizers from onnxruntime, which would quantize their weights.

Where onnxruntime finds DequantizeLinear -> Conv, ConvTranspose or Gemm -> QuantizeLinear with a
float weight, it rounds the weight itself, to one int8 scale for the whole tensor, whatever that
costs: a depthwise layer that was left in float for its accuracy becomes the worst of all. Behind
an operator that no fusion removes it stays float:

    x  ->  max(x, lowest finite number) = x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import is_quantizer
from onnxq.edit import constant, describe, new_node, producer, set_input, users, variable
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.op_kind import kind_of
from onnxq.operators.placement import MOVES
from onnxq.pass_ import Pass, Trace

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_INSIDE = MOVES | {"Relu", "Clip"}
"""Operators that onnxruntime looks through on its way to a quantizer."""


@dataclass(frozen=True)
class GuardFloatLayers(Pass):
    """Insert Max(x, lowest number) before float layers that read and write quantized tensors."""

    name: ClassVar[str] = "guard-float-layers"
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for layer in model.nodes(*_LAYERS):
            if array(layer.inputs[1]) is None or not _reads_codes(layer.inputs[0]):
                continue
            if not _writes_codes(layer.outputs[0]):
                trace.skip(describe(layer), "no quantizer follows it")
                continue
            read = layer.inputs[0]
            kind = np.dtype(layer.inputs[1].dtype)
            lowest = constant(model, f"{read.name}.lowest", np.array(np.finfo(kind).min, kind))
            guarded = variable(model, f"{read.name}.guarded", like=read)
            new_node(
                model,
                "Max",
                [read, lowest],
                [guarded],
                name=f"{layer.name or layer.outputs[0].name}.guard",
                graph=layer.owner,
            )
            set_input(layer, 0, guarded)
            trace.rewrote(describe(layer), "onnxruntime would quantize its weight per tensor")


def _reads_codes(tensor: gs.Tensor) -> bool:
    node = producer(tensor)
    while node is not None and kind_of(node) in MOVES:
        tensor = node.inputs[0]
        node = producer(tensor)
    return node is not None and is_quantizer(node)


def _writes_codes(tensor: gs.Tensor) -> bool:
    waiting = [tensor]
    while waiting:
        for node, index in users(waiting.pop()):
            if is_quantizer(node):
                return True
            if index == 0 and kind_of(node) in _INSIDE:
                waiting += node.outputs
    return False
