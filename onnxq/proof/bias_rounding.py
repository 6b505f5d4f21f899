"""How far onnxruntime's integer kernels may be off because they round float biases.

    b  ->  round(b / (s_x s_w)) * s_x s_w,        off by at most s_x s_w / 2

is what its optimiser does to the float bias of a Conv or Gemm between quantizers. In steps of the
result that is s_x s_w / (2 s_y): next to nothing, unless a weight has few and coarse codes, as in
depthwise convolutions with learned steps. It is no fault of the file. Half a step is tolerated: a
kernel that is farther off computes something else, whatever the reason.
"""

from __future__ import annotations

import onnx

from onnxq.operators.weight_axis import BIAS_INPUT
from onnxq.proof.step_size import Steps
from onnxq.running.sessions import OpenModel

_MOST = 0.5
_CLAMPS = ("Relu", "Clip")


def bias_rounding(model: OpenModel) -> dict[str, float]:
    """By what a QuantizeLinear makes: how many steps the bias of its kernel is rounded by."""
    graph, steps = model.proto.graph, Steps(model)
    producers = {name: node for node in graph.node for name in node.output if name}
    found = {}
    for node in graph.node:
        if node.op_type != "QuantizeLinear" or node.domain not in ("", "com.microsoft"):
            continue
        layer = producers.get(node.input[0])
        while layer is not None and layer.op_type in _CLAMPS:
            layer = producers.get(layer.input[0])
        off = None if layer is None else _off(layer, node, producers, steps)
        if off is not None:
            found[node.output[0]] = min(off, _MOST)
    return found


def _off(
    layer: onnx.NodeProto,
    quantizer: onnx.NodeProto,
    producers: dict[str, onnx.NodeProto],
    steps: Steps,
) -> float | None:
    """Half a step of the coarsest sums of a layer, in steps of its result."""
    at = BIAS_INPUT.get(layer.op_type)
    if at is None or len(layer.input) <= at or layer.input[at] in producers:
        return None  # no bias, or one that has codes, or is computed
    sums = 0.5
    for name in layer.input[:2]:
        codes = producers.get(name)
        if codes is None or codes.op_type != "DequantizeLinear":
            return None
        scale = steps.constant(codes.input[1])
        if scale is None or not scale.size:
            return None
        sums *= float(scale.max())
    result = steps.constant(quantizer.input[1])
    return None if result is None or not result.size else sums / float(result.min())


__all__ = ["bias_rounding"]
