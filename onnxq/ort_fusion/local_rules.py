"""Small rules of the first level: what passes its input on goes, Conv takes up constants."""

from __future__ import annotations

import numpy as np

from onnxq.ort_fusion.clips import clip_bounds
from onnxq.ort_fusion.graph import OrtGraph, Step


def local_rules(graph: OrtGraph) -> bool:
    """Drop what passes its input on, and let Conv take up constant steps behind it."""
    changed = False
    for step in graph:
        if _passes_on(graph, step):
            changed |= graph.bypass(step)
        elif step.op == "Relu":
            changed |= _relu_into_clip(graph, step)
        elif step.op == "Conv":
            while _absorb_into_conv(graph, step):
                changed = True
        elif step.op == "Pad":
            changed |= _absorb_pad(graph, step)
        elif step.op == "Transpose":
            changed |= _transpose_into_gemm(graph, step)
    return changed


def _passes_on(graph: OrtGraph, step: Step) -> bool:
    if step.op == "Identity":
        return True
    if step.op == "Dropout":
        return not any(graph.edges(o) or o in graph.outputs for o in step.outputs[1:])
    if step.op in _NEUTRAL:
        return _does_nothing(graph, step)
    return False


_NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}


def _does_nothing(graph: OrtGraph, step: Step) -> bool:
    """Whether an operand is the neutral element, and does not widen the other."""
    sides = (1, 0) if step.op in ("Add", "Mul") else (1,)
    for side in sides:
        value = graph.value(step.inputs[side])
        if value is None or value.size != 1 or float(value.reshape(-1)[0]) != _NEUTRAL[step.op]:
            continue
        shape = graph.shape(step.inputs[1 - side])
        if shape is not None and value.ndim <= len(shape):
            if side == 0:  # what passes its first input on is removed
                first, second = step.inputs
                graph.set_input(step, 0, second)
                graph.set_input(step, 1, first)
            return True
    return False


def _relu_into_clip(graph: OrtGraph, step: Step) -> bool:
    """Relu -> Clip: the Clip alone, its lower bound at least 0."""
    clip = graph.only_reader(step.output)
    if clip is None or clip.op != "Clip":
        return False
    low, high = clip_bounds(graph, clip)
    if low is None:
        return False
    clip.attrs = {**clip.attrs, "min": max(low, 0.0), "max": high}
    clip.since = min(clip.since, 6)
    return graph.bypass(step)


def _absorb_into_conv(graph: OrtGraph, conv: Step) -> bool:
    """Conv with constant weight and bias -> BatchNorm, Add or Mul of constants."""
    constants = [n for n in conv.inputs[1:] if n]
    if not all(graph.is_constant(n) for n in constants) or len(conv.outputs) != 1:
        return False
    step = graph.only_reader(conv.output)
    weight = graph.shape(conv.given(1))
    if step is None or not weight:
        return False
    if step.op == "BatchNormalization":
        fits = all(graph.is_constant(n) for n in step.inputs[1:]) and len(step.outputs) == 1
    elif step.op in ("Add", "Mul"):
        fits = step.inputs[0] == conv.output and _per_channel(graph, step.inputs[1], weight)
    else:
        return False
    if not fits:
        return False
    if step.op != "Mul" and not conv.given(2):
        bias = graph.fresh()
        graph.folded.add(bias)
        graph.set_input(conv, 2, bias)
    conv.also += [step.key, *step.also]
    y = step.output
    graph.remove(step)
    graph.set_output(conv, y)
    return True


def _per_channel(graph: OrtGraph, name: str, weight: list[int]) -> bool:
    """Whether constant `name` has one value per output channel: (C, 1, 1) or (1, C, 1, 1)."""
    shape = graph.shape(name)
    if not graph.is_constant(name) or shape is None:
        return False
    rank = len(weight)
    if len(shape) not in (rank - 1, rank) or (len(shape) == rank and shape[0] != 1):
        return False
    axis = len(shape) - (rank - 1)
    return all(size == (weight[0] if i == axis else 1) for i, size in enumerate(shape))


def _absorb_pad(graph: OrtGraph, pad: Step) -> bool:
    """Pad with zeros in front of one Conv: the Conv pads."""
    reader = graph.only_reader(pad.output)
    if reader is None or reader.op != "Conv" or reader.inputs[0] != pad.output:
        return False
    mode = pad.attrs.get("mode", "constant")
    if mode != "constant" or reader.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return False
    if pad.since >= 11:
        pads = graph.value(pad.given(1))
        value = graph.value(pad.given(2)) if pad.given(2) else np.zeros(1)
        if value is None or value.size != 1 or float(value.reshape(-1)[0]):
            return False
    else:
        pads = np.asarray(pad.attrs.get("pads", pad.attrs.get("paddings", ())))
        if pad.attrs.get("value", 0.0):
            return False
    if pads is None or pads.size < 6 or (pad.since >= 18 and pad.given(3)):
        return False
    half = pads.size // 2
    outer = (*pads[:2].tolist(), *pads[half : half + 2].tolist())
    return not any(outer) and bool((pads >= 0).all()) and graph.bypass(pad)


def _transpose_into_gemm(graph: OrtGraph, step: Step) -> bool:
    """A matrix transposed for one Gemm alone: the Gemm reads it the other way round."""
    gemm = graph.only_reader(step.output)
    if gemm is None or gemm.op != "Gemm" or list(step.attrs.get("perm", (1, 0))) != [1, 0]:
        return False
    if step.output not in gemm.inputs[:2] or len(graph.shape(step.inputs[0]) or ()) != 2:
        return False
    name = "transA" if gemm.inputs[0] == step.output else "transB"
    gemm.attrs = {**gemm.attrs, name: 1 - int(gemm.attrs.get(name, 0))}
    return graph.bypass(step)
