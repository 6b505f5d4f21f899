"""Relu and Clip made redundant by the quantizer after them."""

from __future__ import annotations

import numpy as np

from onnxq.ort_fusion.graph import QUANTIZE, Operation, OrtGraph
from onnxq.ort_fusion.pairs import written_type

CLIPS = ("Relu", "Clip")


def is_redundant(graph: OrtGraph, operation: Operation) -> bool:
    """Whether `operation` is a Relu or Clip whose only consumer is a Q that cuts off as much."""
    after = graph.only_consumer(operation.output) if operation.op in CLIPS else None
    return after is not None and after.op == QUANTIZE and not why_kept(graph, operation, after)


def why_kept(graph: OrtGraph, clip: Operation, quantize: Operation) -> str:
    """The reason why the Q after a Relu or Clip does not replace it; '' if it does."""
    scale = graph.value(quantize.given(1))
    kind = written_type(graph, quantize)
    if scale is None or scale.size != 1 or scale.dtype != np.float32 or kind is None:
        return "the scale after it is not one float32 number"
    if kind.name not in ("int8", "uint8", "int16", "uint16"):
        return f"the codes after it are {kind.name}"
    zeros = graph.value(quantize.given(2)) if quantize.given(2) else np.zeros(())
    if zeros is None or zeros.size != 1:
        return "the zero point after it is not one number"
    step, zero, info = np.float32(scale.item()), int(zeros.item()), np.iinfo(kind.name)
    if clip.op == "Relu":
        if zero == info.min:
            return ""
        return f"the zero point after it is {zero}, not the lowest code {info.min}"
    bounds = _bounds(graph, clip)
    if bounds is None:
        return "its bounds are not constant"
    with np.errstate(over="ignore"):
        low, high = (float(np.rint(np.float32(end) / step)) + zero for end in bounds)
    if low <= info.min and high >= info.max:
        return ""
    return (
        f"it cuts at {bounds[0]:.4g}..{bounds[1]:.4g}, inside the range "
        f"{float(step) * (info.min - zero):.4g}..{float(step) * (info.max - zero):.4g} after it"
    )


def _bounds(graph: OrtGraph, clip: Operation) -> tuple[float, float] | None:
    """The bounds of a Clip: attributes before opset 11, inputs since; open ends are the type's."""
    ends = [float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)]
    if graph.opset < 11:
        return float(clip.attrs.get("min", ends[0])), float(clip.attrs.get("max", ends[1]))
    for end in (0, 1):
        if clip.given(end + 1):
            value = graph.value(clip.given(end + 1))
            if value is None or value.size != 1 or value.dtype.kind != "f":
                return None
            ends[end] = float(value.item())
    return ends[0], ends[1]
