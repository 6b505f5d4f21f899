"""Valid models that onnxruntime does not load, or loads and computes wrongly: where, and why.

Measured with onnxruntime 1.31. onnxruntime itself says that it does not load a model; the rules
here say which node is to blame. Only these rules find what it computes wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from onnxq.ort_fusion.clips import CLIPS
from onnxq.ort_fusion.graph import DEQUANTIZE, QUANTIZE, Operation, OrtGraph
from onnxq.ort_fusion.pairs import becomes_uint8, code_type
from onnxq.ort_fusion.reasons import StaysFloat, output_quantizers
from onnxq.quant.qparams import Array


@dataclass(frozen=True)
class Refusal:
    """A place in a valid model at which onnxruntime fails."""

    output: str
    """The first output of the node."""
    reason: str
    loads: bool | None = False
    """Whether it only fails when it runs, or computes something else; None: that depends on the
    numbers."""
    fix: str = "use uint8 activations with one scalar scale per tensor, at an opset from 13 to 20"


_TAKES_FLOAT8 = {"Reshape", "Transpose"}
_WEIGHTED = {"Conv", "Gemm", "MatMul"}
_BIASED = {"Conv", "ConvTranspose", "Gemm"}
_WANTS_SCALARS = {"Add", "Mul", "AveragePool"}
_FAILS_LATER = {"Conv", "MatMul", "GlobalAveragePool"}
"""These load with one scale per channel of an activation, and fail when they run."""


def of_kernel(graph: OrtGraph, operation: Operation, key: str, kernel: str) -> Refusal | None:
    """The reason why onnxruntime fails on `kernel`, which replaces `operation`."""
    op = operation.op
    pairs = [graph.made_by(name, DEQUANTIZE) for name in operation.inputs if name]
    inputs = [dq for dq in pairs if dq is not None]
    kinds = [kind.name for dq in inputs if (kind := code_type(graph, dq)) is not None]
    if op not in _TAKES_FLOAT8 and any(kind.startswith("float8") for kind in kinds):
        return Refusal(key, f"onnxruntime gives float8 codes to {kernel}, which rejects them")
    if op in ("ReduceMax", "ReduceMin") and graph.opset < 12:
        return Refusal(key, f"onnxruntime gives codes to {op}, which takes them only from opset 12")
    if op == "Concat" and any(graph.dtype(q.given(1)) == np.float16 for q in inputs):
        why = f"onnxruntime gives float16 scales to {kernel}, which takes float32"
        return Refusal(key, why, fix="compute in float32")
    inputs = inputs[:1] if op in _WEIGHTED else inputs
    try:
        results = output_quantizers(graph, operation, needed=False)
    except StaysFloat:
        results = []
    shapes = [graph.shape(q.given(1)) for q in (*inputs, *results)]
    if op in _WANTS_SCALARS and [1] in shapes:
        why = f"onnxruntime gives a vector of one scale to {kernel}, which takes scalars"
        return Refusal(key, why)
    if all(shape in ([], [1]) for shape in shapes):
        return None
    why = f"onnxruntime gives one scale per channel to {kernel}, which takes one per tensor"
    loads: bool | None = op in _FAILS_LATER
    if op in ("Concat", "Where"):
        loads = None
    elif op == "Softmax":
        loads = all(shape in ([], [1]) for shape in shapes[: len(inputs)])
    return Refusal(key, why, loads)


def of_types(graph: OrtGraph, operation: Operation, key: str) -> Refusal | None:
    """A Q that onnxruntime added after `operation`, whose type it then changes."""
    for use in graph.consumers(operation.output):
        typed = use.op == QUANTIZE and use.attrs.get("output_dtype") == TensorProto.INT8
        if typed and use.source < 0 and becomes_uint8(graph, use):
            return Refusal(
                key,
                "onnxruntime moves the int8 quantizer before it to its result, then makes it "
                "uint8 there but leaves its type attribute int8 (opset 21 and newer), and "
                "rejects its own graph",
            )
    return None


def of_bias(graph: OrtGraph, operation: Operation, key: str, bias: Array | None) -> Refusal | None:
    """A float bias of more steps of input scale * weight scale than int32 can represent."""
    if operation.op not in _BIASED or not operation.given(2):
        return None
    x, weight, stored = (graph.made_by(name, DEQUANTIZE) for name in operation.inputs[:3])
    if x is None or weight is None:
        return None
    if graph.opset < 11 and stored is None and graph.is_constant(operation.given(2)):
        why = "onnxruntime rounds its float bias with an operator that needs opset 11"
        return Refusal(key, why) if _leads_to_quantizer(graph, operation) else None
    if stored is None or stored.source != operation.source or weight.source == operation.source:
        return None  # stored so in the model; or with a weight whose steps onnxruntime chooses
    scales = [graph.value(pair.given(1)) for pair in (x, weight)]
    if bias is None or any(s is None for s in scales):
        return None
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        product = np.multiply(*(np.float32(s).reshape(-1) for s in scales))
        steps = np.float32(bias).reshape(-1) / product
    lost = (steps >= 2.0**31) | (steps < -(2.0**31))
    if not lost.any():
        return None
    worst = int(np.argmax(np.where(lost, np.abs(steps), 0)))
    kinds = (code_type(graph, pair) for pair in (x, weight))
    wide = any(kind is not None and kind.itemsize > 1 for kind in kinds)
    return Refusal(
        key,
        f"it rounds the float bias to int32 codes with step input scale x weight scale, and "
        f"channel {worst} has {abs(steps[worst]):,.0f} of them; int32 ends at {2**31 - 1:,}",
        loads=True,
        fix="convert or quantize with --variant int32-bias: the bias is stored in steps that fit"
        if wide
        else "give the weight of that channel, or the input, a larger scale",
    )


def _leads_to_quantizer(graph: OrtGraph, operation: Operation) -> bool:
    """Whether a Q follows, with nothing but Relu and Clip in between and no branch."""
    after = graph.only_consumer(operation.output)
    while after is not None and after.op in CLIPS:
        after = graph.only_consumer(after.output)
    return after is not None and after.op == QUANTIZE
