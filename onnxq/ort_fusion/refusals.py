"""Valid models that onnxruntime does not load, or loads and computes wrongly: where, and why.

Measured with onnxruntime 1.31. That it does not load a model is asked from it; the rules here say
which node is to blame. What it computes wrongly only these rules tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from onnxq.ort_fusion.graph import DEQUANTIZE, QUANTIZE, OrtGraph, Step
from onnxq.ort_fusion.pairs import becomes_uint8, code_type
from onnxq.ort_fusion.reasons import StaysFloat, output_quantizers
from onnxq.quant.qparams import Array


@dataclass(frozen=True)
class Refusal:
    """Where onnxruntime fails on a model that is valid."""

    output: str
    """The first tensor that the node makes."""
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


def of_kernel(graph: OrtGraph, step: Step, key: str, kernel: str) -> Iterator[Refusal]:
    """Why onnxruntime fails on `kernel`, which it makes of `step`."""
    pairs = [graph.made_by(name, DEQUANTIZE) for name in step.inputs if name]
    inputs = [dq for dq in pairs if dq is not None]
    kinds = {kind.name for dq in inputs if (kind := code_type(graph, dq)) is not None}
    if step.op not in _TAKES_FLOAT8 and any(kind.startswith("float8") for kind in kinds):
        why = f"onnxruntime gives float8 codes to {kernel}, which does not take them"
        yield Refusal(key, why)
        return
    if step.op in ("ReduceMax", "ReduceMin") and step.since < 12:
        why = f"onnxruntime gives codes to {step.op}, which takes them from opset 12 on only"
        yield Refusal(key, why)
        return
    if step.op == "Concat" and any(graph.dtype(q.given(1)) == np.float16 for q in inputs):
        why = f"onnxruntime gives float16 scales to {kernel}, which takes float32"
        yield Refusal(key, why, fix="compute in float32")
        return
    if step.op in _WEIGHTED:
        inputs = inputs[:1]
    several = [q for q in inputs if not graph.is_scalar(q.given(1))]
    behind = _behind(graph, step) if kernel != "MatMulIntegerToFloat" else []
    made = [q for q in behind if not graph.is_scalar(q.given(1))]
    vectors = [q for q in (*inputs, *behind) if graph.shape(q.given(1)) == [1]]
    if step.op in _WANTS_SCALARS and vectors:
        why = f"onnxruntime gives a vector of one scale to {kernel}, which takes scalars"
        yield Refusal(key, why)
    elif several or made:
        why = f"onnxruntime gives one scale per channel to {kernel}, which takes one per tensor"
        loads: bool | None = step.op in _FAILS_LATER
        if step.op in ("Concat", "Where"):
            loads = None
        elif step.op == "Softmax":
            loads = not several
        yield Refusal(key, why, loads)


def _behind(graph: OrtGraph, step: Step) -> list[Step]:
    try:
        return output_quantizers(graph, step, needed=False)
    except StaysFloat:
        return []


def _leads_to_quantizer(graph: OrtGraph, step: Step) -> bool:
    """Whether a Q follows, with nothing but Relu and Clip in between and no branch."""
    reader = graph.only_reader(step.output)
    while reader is not None and reader.op in ("Relu", "Clip"):
        reader = graph.only_reader(reader.output)
    return reader is not None and reader.op == QUANTIZE


def of_types(graph: OrtGraph, step: Step, key: str) -> Iterator[Refusal]:
    """A Q that onnxruntime put behind `step` with its type, which it then changes."""
    for quantize, _ in graph.edges(step.output):
        typed = quantize.op == QUANTIZE and quantize.attrs.get("output_dtype") == TensorProto.INT8
        if typed and quantize.source < 0 and becomes_uint8(graph, quantize):
            yield Refusal(
                key,
                "onnxruntime moves the int8 quantizer before it to its result, then makes it "
                "uint8 there but leaves its type attribute int8 (opset 21 and newer), and "
                "rejects its own graph",
            )


def of_bias(graph: OrtGraph, step: Step, key: str, bias: Array | None) -> Iterator[Refusal]:
    """A float bias with more steps of input scale * weight scale than int32 holds."""
    if step.op not in _BIASED or not step.given(2):
        return
    pairs = [graph.made_by(name, DEQUANTIZE) for name in step.inputs[:3]]
    x, weight, stored = pairs
    if x is None or weight is None:
        return
    if graph.opset < 11 and stored is None and graph.is_constant(step.given(2)):
        if _leads_to_quantizer(graph, step):
            why = "onnxruntime rounds its float bias with an operator that needs opset 11"
            yield Refusal(key, why)
        return
    if stored is None or stored.source != step.source or weight.source == step.source:
        return  # stored so in the model; or with a weight whose steps onnxruntime chooses
    scales = [graph.value(pair.given(1)) for pair in (x, weight)]
    if bias is None or any(s is None for s in scales):
        return
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        product = np.multiply(*(np.float32(s).reshape(-1) for s in scales))
        steps = np.float32(bias).reshape(-1) / product
    lost = (steps >= 2.0**31) | (steps < -(2.0**31))
    if not lost.any():
        return
    worst = int(np.argmax(np.where(lost, np.abs(steps), 0)))
    kinds = (code_type(graph, pair) for pair in (x, weight))
    wide = any(kind is not None and kind.itemsize > 1 for kind in kinds)
    yield Refusal(
        key,
        f"it rounds the float bias to int32 codes with step input scale x weight scale, and "
        f"channel {worst} has {abs(steps[worst]):.3g} of them; int32 ends at 2.1e9",
        loads=True,
        fix="convert with --variant int32-bias: the bias is stored in steps that fit"
        if wide
        else "give the weight of that channel, or the input, a larger scale",
    )
