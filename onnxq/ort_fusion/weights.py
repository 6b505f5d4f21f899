"""Float weights and biases between quantized tensors: onnxruntime quantizes them by itself."""

from __future__ import annotations

import numpy as np

from onnxq.ort_fusion.graph import BODY, DEQUANTIZE, QUANTIZE, OrtGraph, Refusal, Step
from onnxq.ort_fusion.pairs import INT8, code_type, copy_type, new_constant

REQUANTIZED = "onnxq.requantized"
"""Attribute of layers whose float weight onnxruntime quantizes by itself."""


def quantize_weights(graph: OrtGraph) -> bool:
    """A float weight or bias between a quantized input and a quantized output is quantized."""
    changed = False
    for step in graph:
        if step.op not in ("Conv", "ConvTranspose", "Gemm"):
            continue
        x = graph.made_by(step.inputs[0], DEQUANTIZE)
        if x is None or not graph.is_scalar(x.given(1)) or not _leads_to_q(graph, step):
            continue
        changed |= _quantize_parts(graph, step, x)
    return changed


def _leads_to_q(graph: OrtGraph, step: Step) -> bool:
    """Whether a Q follows, with nothing but Relu and Clip in between and no branch."""
    while True:
        edges = graph.edges(step.output)
        if len(edges) != 1 or edges[0][1] == BODY or len(step.outputs) != 1:
            return False
        step = edges[0][0]
        if step.op == QUANTIZE:
            return True
        if step.op not in ("Relu", "Clip"):
            return False


def _quantize_parts(graph: OrtGraph, step: Step, x: Step) -> bool:
    weight, bias = graph.made_by(step.inputs[1], DEQUANTIZE), step.given(2)
    if weight is None and (
        not graph.is_initializer(step.inputs[1]) or graph.dtype(step.inputs[1]) != np.float32
    ):
        return False
    if bias and not (graph.is_initializer(bias) and _rank(graph, bias) == 1):
        return False
    if weight is not None and not bias:
        return False
    if weight is not None and not graph.is_scalar(weight.given(1)):
        scales = graph.shape(weight.given(1))
        size = (graph.shape(bias) or [None])[0]
        fits = scales is not None and len(scales) == 1 and scales[0] == size
        if not fits and bias not in graph.folded:
            return False
        if weight.attrs.get("block_size", 0):
            return False
        axis = int(weight.attrs.get("axis", 1))
        rank = len(graph.shape(weight.inputs[0]) or graph.shape(step.inputs[1]) or ())
        wanted = 0 if step.op != "Gemm" or step.attrs.get("transB", 0) else 1
        if (axis + rank if axis < 0 else axis) != wanted:
            return False
    if weight is None:
        codes, made = graph.fresh(), graph.fresh()
        copy_type(graph, made, step.inputs[1])
        graph.folded.add(codes)
        graph.types[codes] = INT8
        scale = new_constant(graph, np.asarray(1, np.float32))
        zero = new_constant(graph, np.asarray(0, np.int8))
        graph.add(Step(DEQUANTIZE, [codes, scale, zero], [made], since=x.since))
        graph.set_input(step, 1, made)
        step.attrs = {**step.attrs, REQUANTIZED: True}
    if bias:
        if graph.opset < 11:
            why = "onnxruntime rounds its float bias with an operator that needs opset 11"
            graph.refusals.append(Refusal(step.key, why))
        _check_fit(graph, step, x, weight)
        codes, made = graph.fresh(), graph.fresh()
        copy_type(graph, made, bias)
        graph.folded.add(codes)
        graph.types[codes] = np.dtype(np.int32)
        graph.add(Step(DEQUANTIZE, [codes, graph.fresh()], [made], since=x.since))
        graph.set_input(step, 2, made)
    return True


def _check_fit(graph: OrtGraph, step: Step, x: Step, weight: Step | None) -> None:
    """Tell of a bias with more steps of input scale * weight scale than int32 holds."""
    if weight is None:
        return
    bias, *scales = (graph.value(n) for n in (step.inputs[2], x.given(1), weight.given(1)))
    if bias is None or any(s is None for s in scales):
        return
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        product = np.multiply(*(np.float32(s).reshape(-1) for s in scales))
        steps = np.float32(bias) / product
    lost = (steps >= 2.0**31) | (steps < -(2.0**31))
    if not lost.any():
        return
    worst = int(np.argmax(np.where(lost, np.abs(steps), 0)))
    kinds = (code_type(graph, pair) for pair in (x, weight))
    wide = any(kind is not None and kind.itemsize > 1 for kind in kinds)
    graph.refusals.append(
        Refusal(
            step.key,
            f"it rounds the float bias to int32 codes with step input scale x weight scale, and "
            f"channel {worst} has {abs(steps[worst]):.3g} of them; int32 ends at 2.1e9",
            loads=True,
            fix="convert with --variant int32-bias: the bias is stored in steps that fit"
            if wide
            else "give the weight of that channel, or the input, a larger scale",
        )
    )


def _rank(graph: OrtGraph, name: str) -> int:
    if name in graph.folded:
        return 1  # a bias that a Conv took up
    shape = graph.shape(name)
    return -1 if shape is None else len(shape)
