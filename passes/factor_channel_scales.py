"""Write the scales per channel of an activation as factors around a quantizer of scale 1.

    y = s_c * (clamp(round(x / s_c) + z) - z)         Div and Mul by the scales of channels c,
                                                      a quantizer of scale 1 in between

Dividing by s_c is what the quantizer does anyway, and the last product is that of dequantizing:
both forms give the same bits. onnxruntime needs the second one. Its optimiser puts a layer or an
element-wise operator between pairs into an integer kernel without checking the number of scales.
The kernels have one per tensor: the model does not load, fails when it runs or (Softmax) gives
wrong numbers. Next to the Div and the Mul nothing is fused, and that operator computes in float,
as it must.

Activations that no such operator produces or consumes stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of, set_params
from onnxq.edit import constant, describe, new_node, producer, set_input, set_output, variable
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import is_constant
from onnxq.operators.broadcast_shape import rank_of, spread
from onnxq.operators.fused_operators import RULES
from onnxq.operators.weight_axis import LINEAR_OPS
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams

_FUSED = frozenset(op for op, rule in RULES.items() if rule.form not in ("moves", "gemm"))
"""Operators that are fused regardless of scales; Gemm and those that move values are not."""


@dataclass(frozen=True)
class FactorChannelScales(Pass):
    """Take scales per channel out of activation quantizers that onnxruntime would fuse."""

    name: ClassVar[str] = "factor-channel-scales"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes(FAKE_QUANTIZE):
            params = params_of(node)
            neighbour = None if params.axis is None or params.block else _fused_with(node)
            if neighbour is None:
                continue
            if node.inputs[1].dtype != np.float32:
                trace.skip(node, f"its scales are {node.inputs[1].dtype}, which would round twice")
                continue
            scales = spread(params.scale, params.axis, rank_of(node.inputs[0]))
            if scales is None:
                trace.skip(node, f"the rank of '{params.tensor}' is not known")
                continue
            _factor(model, node, params, constant(model, f"{params.tensor}.scales", scales))
            trace.rewrote(
                node,
                f"'{params.tensor}' has {params.scale.size} scales, which the integer kernel of "
                f"{describe(neighbour)} does not support: it computes in float",
            )


def _fused_with(node: gs.Node) -> gs.Node | None:
    """A neighbour of the quantizer `node` that onnxruntime fuses with it."""
    x = node.inputs[0]
    # The weights of layers are left to `dequantize-off-axis`.
    exempt = LINEAR_OPS if is_constant(x) else ()
    near = (*x.inputs, *(reader for reader in node.outputs[0].outputs if reader.op not in exempt))
    return next(filter(_is_fused, near), None)


def _is_fused(node: gs.Node) -> bool:
    """Whether `node` has an integer kernel, and all its operands are quantized."""
    if domain_of(node) or node.op not in _FUSED:
        return False
    operands = node.inputs[1:] if node.op == "Where" else node.inputs
    if node.op in LINEAR_OPS:
        operands = node.inputs[:2]  # onnxruntime quantizes biases by itself
    return all(producer(t, FAKE_QUANTIZE) is not None for t in operands if t.name)


def _factor(model: Model, node: gs.Node, params: QParams, scales: gs.Constant) -> None:
    source, result, base = node.inputs[0], node.outputs[0], params.tensor
    steps, rounded = (variable(model, f"{base}.{end}", source) for end in ("steps", "rounded"))
    graph = node.owner
    new_node(model, "Div", [source, scales], [steps], name=f"{base}.div", graph=graph)
    set_input(node, 0, steps)
    set_output(node, 0, rounded)
    new_node(model, "Mul", [rounded, scales], [result], name=f"{base}.mul", graph=graph)
    unit = params.with_(scale=np.ones_like(params.scale))
    zeros = params.zero_point
    if not np.ptp(zeros):
        unit = unit.with_(scale=1.0, zero_point=zeros.flat[0], axis=None)
    set_params(model, node, unit)
