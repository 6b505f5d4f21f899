"""Layers that QNN's HTP refuses, since nothing quantizes what they make.

The HTP takes a layer together with the quantizers around it. Between a layer and the quantizer of
its output only a Relu (or Clip from 0 up) may follow, and only where the quantizer's codes start
at 0: then it clamps where the Relu does, and the Relu is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import is_fake_quantize, params_of
from onnxq.edit import describe, users
from onnxq.lint.rule import Finding, LintRule, Subject

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_FUNCTIONS = ("Relu", "Clip")


def _check(subject: Subject) -> Iterator[Finding]:
    for node in subject.canonical.nodes(*_LAYERS):
        if not is_quantized(node):
            continue
        why = _broken(node)
        if why:
            yield Finding(
                "error",
                describe(node),
                QNN_NODE_UNITS.name,
                f"{why}: QNN's HTP rejects the layer",
                "quantize the output of the layer, or of the Relu after it with codes that start "
                "at 0 (uint8, zero point 0)",
            )


def is_quantized(node: gs.Node) -> bool:
    """Whether a layer reads codes of both its input and its weight."""
    makers = [t.inputs[0] if t.inputs else None for t in node.inputs[:2]]
    return len(makers) == 2 and all(is_fake_quantize(maker) for maker in makers)


def _broken(node: gs.Node) -> str:
    uses = users(node.outputs[0])
    if uses and all(is_fake_quantize(reader) for reader, _ in uses):
        return ""
    functions = [reader for reader, _ in uses if reader.op in _FUNCTIONS and not reader.domain]
    if len(uses) != 1 or not functions:
        return "its output is not quantized"
    behind = users(functions[0].outputs[0])
    quantizers = [reader for reader, _ in behind if is_fake_quantize(reader)]
    if not behind or len(quantizers) != len(behind):
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
