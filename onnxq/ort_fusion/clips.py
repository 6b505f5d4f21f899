"""Relu and Clip that the quantizer behind them makes idle."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.ort_fusion.graph import QUANTIZE, OrtGraph, Step
from onnxq.ort_fusion.pairs import written_type


def followed_by_its_quantizer(graph: OrtGraph, step: Step) -> bool:
    """Whether `step` is a Relu or Clip, read by one Q alone that cuts off at least as much."""
    if step.op not in ("Relu", "Clip"):
        return False
    reader = graph.only_reader(step.output)
    return reader is not None and reader.op == QUANTIZE and not why_clip_stays(graph, step, reader)


def why_clip_stays(graph: OrtGraph, clip: Step, quantize: Step) -> str:
    """In words, why a Relu or Clip is not done by the Q after it; '' if it is."""
    scale = graph.value(quantize.given(1))
    kind = written_type(graph, quantize)
    if scale is None or scale.size != 1 or scale.dtype != np.float32 or kind is None:
        return "the scale after it is not one float32 number"
    scale = scale.reshape(())
    if kind.name not in ("int8", "uint8", "int16", "uint16"):
        return f"the codes after it are {kind.name}"
    zero = 0
    if quantize.given(2):
        value = graph.value(quantize.given(2))
        if value is None or value.size != 1:
            return "the zero point after it is not one number"
        zero = int(value.reshape(()))
    info = np.iinfo(kind.name)
    if clip.op == "Relu":
        if zero == info.min:
            return ""
        return f"the zero point after it is {zero}, not the lowest code {info.min}"
    low, high = clip_bounds(graph, clip)
    if low is None or high is None:
        return "its bounds are not constant"
    # In codes, as Q rounds.
    with np.errstate(over="ignore"):
        first = _as_int(np.rint(np.float32(low) / np.float32(scale))) + zero
        last = _as_int(np.rint(np.float32(high) / np.float32(scale))) + zero
    if first <= info.min and last >= info.max:
        return ""
    return (
        f"it cuts at {low:.4g}..{high:.4g}, inside the range "
        f"{float(scale) * (info.min - zero):.4g}..{float(scale) * (info.max - zero):.4g} after it"
    )


def _as_int(value: Any) -> int:
    limit = float(2**31)
    return int(min(max(float(value), -limit), limit))


def clip_bounds(graph: OrtGraph, clip: Step) -> tuple[float | None, float | None]:
    """The bounds of a Clip: attributes before opset 11, inputs since; open ends are the type's."""
    ends = [float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)]
    if clip.since < 11:
        return float(clip.attrs.get("min", ends[0])), float(clip.attrs.get("max", ends[1]))
    found: list[float | None] = [*ends]
    for i in (0, 1):
        if clip.given(i + 1):
            value = graph.value(clip.given(i + 1))
            usable = value is not None and value.size == 1 and value.dtype.kind == "f"
            found[i] = float(value.reshape(-1)[0]) if usable and value is not None else None
    return found[0], found[1]
