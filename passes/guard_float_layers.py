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

from onnxq.analysis.quantized_neighbours import becomes_codes, comes_from_codes
from onnxq.edit import constant, describe, new_node, set_input, variable
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.float_guard import lowest
from onnxq.pass_ import Pass, Trace

_LAYERS = ("Conv", "ConvTranspose", "Gemm")


@dataclass(frozen=True)
class GuardFloatLayers(Pass):
    """Insert Max(x, lowest number) before float layers that read and write quantized tensors."""

    name: ClassVar[str] = "guard-float-layers"
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for layer in model.nodes(*_LAYERS):
            if array(layer.inputs[1]) is None or not comes_from_codes(layer.inputs[0]):
                continue
            if not becomes_codes(layer.outputs[0]):
                trace.skip(describe(layer), "no quantizer follows it")
                continue
            read = layer.inputs[0]
            kind = np.dtype(layer.inputs[1].dtype)
            limit = constant(model, f"{read.name}.lowest", lowest(kind))
            guarded = variable(model, f"{read.name}.guarded", like=read)
            new_node(
                model,
                "Max",
                [read, limit],
                [guarded],
                name=f"{layer.name or layer.outputs[0].name}.guard",
                graph=layer.owner,
            )
            set_input(layer, 0, guarded)
            trace.rewrote(describe(layer), "onnxruntime would quantize its weight per tensor")
