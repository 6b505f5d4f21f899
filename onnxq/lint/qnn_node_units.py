"""Layers that QNN's HTP rejects because their outputs are not quantized.

The HTP runs a layer together with the quantizers around it. Between a layer and the quantizer of
its output there may be a Relu (or Clip from 0 up), if the quantizer's codes start at 0: then the
quantizer clamps as the Relu does, and the Relu is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, is_fake_quantize, params_of
from onnxq.edit import describe, producer
from onnxq.lint.rule import Finding, LintRule, Subject

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_FUNCTIONS = ("Relu", "Clip")


def _check(subject: Subject) -> Iterator[Finding]:
    for node in subject.canonical.nodes(*_LAYERS):
        quantized = [producer(t, FAKE_QUANTIZE) is not None for t in node.inputs[:2]]
        why = _broken(node) if all(quantized) else ""
        if why:
            yield Finding(
                "error",
                describe(node),
                QNN_NODE_UNITS.name,
                f"{why}: QNN's HTP rejects the layer",
                "quantize the output of the layer, or of the Relu after it with codes that start "
                "at 0 (uint8, zero point 0)",
            )


def _broken(node: gs.Node) -> str:
    """Why no quantizer belongs to the output of a layer; empty if one does."""
    uses = node.outputs[0].outputs
    if uses and all(map(is_fake_quantize, uses)):
        return ""
    functions = [user for user in uses if user.op in _FUNCTIONS and not user.domain]
    if len(uses) != 1 or not functions:
        return "its output is not quantized"
    after = functions[0].outputs[0].outputs
    quantizers = [node for node in after if is_fake_quantize(node)]
    if not after or len(quantizers) != len(after):
        return f"the output of {describe(functions[0])} after it is not quantized"
    for quantizer in quantizers:
        params = params_of(quantizer)
        if (params.zero_point != params.lo).any():
            return (
                f"{describe(functions[0])} after it cannot be folded: the codes of its output do "
                "not start at zero"
            )
    return ""


QNN_NODE_UNITS = LintRule(
    "qnn-node-units", "layers without an output quantizer that QNN's HTP can find", _check
)
