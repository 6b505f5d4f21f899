"""Nodes that onnxruntime rejects, runs in float, or quantizes by itself."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_graphsurgeon as gs

from onnxq.canonical.metadata_texts import FLOAT_LAYERS, texts_of
from onnxq.edit import describe
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.operators.float_guard import is_float_guard

_FIXES = {
    "activation-stays": "put the zero point at the lowest code and the range inside the bounds; "
    "'onnxq convert --backend onnxruntime' does this if it is exact",
    "no-output-quantizer": "quantize its result; nothing to do if only float operators read it",
    "several-readers": "let all consumers read the quantized result",
    "float-result-leaves": "return the quantized result instead",
    "float-input": "quantize all of its inputs",
    "bias-scale": "store the bias with scale = input scale x weight scale, or as float",
    "int8-input": "use uint8 activations; 'onnxq convert --backend onnxruntime' does this",
    "16-bit": "use 8 bits, or accept float speed",
    "4-bit": "store the codes as int8",
    "mixed-types": "use one type for all activations",
    "unequal-parameters": "give both the same range: run 'propagate-ranges'",
    "operator-version": "raise the opset: run 'to-qdq{opset=13}'",
    "no-zero-point": "write zero points, even if they are 0",
    "half": "compute in float32: onnxruntime's CPU kernels have no float16",
    "per-channel": "use one scale per tensor for activations",
    "gemm-factor": "fold alpha and beta into weight and bias",
}


def _check(subject: Subject) -> Iterator[Finding]:
    nodes = {t.name: n for n in subject.model.nodes() for t in n.outputs[:1]}
    outlook = subject.outlook
    for refusal in outlook.refusals:
        node, verb = nodes.get(refusal.output), "does not load the model"
        if refusal.loads:
            verb = "loads the model and then fails or computes something else"
        yield Finding(
            "error",
            describe(node) if node is not None else refusal.output or "model",
            "onnxruntime-refuses",
            f"onnxruntime {verb}: {refusal.reason}",
            refusal.fix,
        )
    on_purpose = _float_on_purpose(subject)
    for found in outlook.nodes.values():
        node = nodes.get(found.output)
        if node is None or is_float_guard(node):
            continue
        where = describe(node)
        if found.requantized:
            yield Finding(
                "warning",
                where,
                "weight-requantized",
                "its weight is float, but its input and output are quantized: onnxruntime rounds "
                "the weight to int8 itself, with one scale for all channels",
                "quantize the weight in training, or run 'onnxq convert', which guards the layer",
            )
        if not found.integer and _reads_codes(node) and node.name not in on_purpose:
            yield Finding(
                "info" if found.rule == "no-integer-kernel" else "warning",
                where,
                "runs-in-float",
                f"runs in float: {found.reason}",
                _FIXES.get(found.rule, "nothing to do: onnxruntime has no integer kernel for it"),
            )


def _float_on_purpose(subject: Subject) -> set[str]:
    """Names of layers that the file says were kept in float: `missing-range` lists them."""
    texts = texts_of(subject.canonical, FLOAT_LAYERS)
    layers = subject.plain.nodes() if texts else []
    return {n.name for n in layers if n.name and n.outputs and n.outputs[0].name in texts}


def _reads_codes(node: gs.Node) -> bool:
    """Whether an input of the node is quantized, so that it could compute on codes."""
    return any(t.inputs and t.inputs[0].op == "DequantizeLinear" for t in node.inputs)


ONNXRUNTIME_KERNELS = LintRule(
    "onnxruntime-kernels", "nodes that onnxruntime rejects or runs in float, and why", _check
)
