"""Store weights as floats if a runtime would apply their scales to another axis.

    y[m, n] = sum_k x[m, k] * w[k, n] * s[n]    s goes out of the sum: an integer product
    y[m, n] = sum_k x[m, k] * w[k, n] * s[k]    s stays in the sum: no integer product

Scales along a summed axis have no integer kernel. onnxruntime and OpenVINO fuse such layers
nevertheless: their kernels read the scales as those of output channels, and compute something else
if the numbers happen to match, or fail at run time. The same holds for weights with batch
dimensions and, in onnxruntime, for weights on the left of a MatMul. TensorRT refuses all of them. A
constant whose values are already on the grid is the same weight, and nothing fuses.

onnxruntime and OpenVINO run ConvTranspose with such scales in float, so its weights stay codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.canonical.quantized_weights import on_grid, quantized_weights
from onnxq.edit import constant, describe, set_input, users
from onnxq.graph import Model
from onnxq.operators.weight_axis import weight_axis
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class DequantizeOffAxis(Pass):
    """Store weights as floats if their scales do not run along the output channels."""

    transposed: bool = False
    """Whether ConvTranspose has an integer kernel that constrains its weights too."""

    name: ClassVar[str] = "dequantize-off-axis"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node, params, weight in quantized_weights(model):
            if params.axis is None or params.block:
                continue
            axis = params.axis % weight.ndim
            uses = users(node.outputs[0])
            found = [u for u in uses if not self._reads_correctly(*u, axis, weight.ndim)]
            if not found:
                continue
            real = constant(model, f"{params.tensor}.on_grid", on_grid(params, weight))
            for reader, index in found:
                set_input(reader, index, real)
            trace.rewrote(
                f"'{params.tensor}'",
                f"no integer kernel of {describe(found[0][0])} supports scales along axis {axis}",
            )

    def _reads_correctly(self, node: gs.Node, index: int, axis: int, rank: int) -> bool:
        """Whether `node` reads a weight with scales along `axis` correctly, fused or not."""
        layout = weight_axis(node, rank)
        if layout is None or index > 1 or (node.op == "ConvTranspose" and not self.transposed):
            return True
        if index == 0:
            return bool(node.op != "MatMul")
        return axis == layout.axis and (node.op != "MatMul" or rank == 2)
