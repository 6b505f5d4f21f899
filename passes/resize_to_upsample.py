"""Write Resize by integer factors as Upsample, for targets that know only the older operator.

Upsample reads position i / s for output i. With i = k * s + r, r = 0 .. s - 1, nearest neighbours
are element k. Resize takes the same elements whatever its coordinates and rounding, as long as

    p(r) = r / s    (r + 1/2) / s - 1/2    (r + 1/2) / s       asymmetric, half pixel, TF's

rounds to 0 for all r. Linear interpolation is the same with asymmetric coordinates only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.upsample import UPSAMPLE
from onnxq.edit import constant, describe, inputs_of, replace_by_node
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.pass_ import Pass, Trace

_NONE, _HALF = Fraction(0), Fraction(1, 2)
_OFFSETS = {
    "asymmetric": (_NONE, _NONE),
    "tf_half_pixel_for_nn": (_HALF, _NONE),
    **dict.fromkeys(("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"), (_HALF, _HALF)),
}
"""The numbers a, b of the position (r + a) / s - b, by coordinate mode."""
_ROUND: dict[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_ceil": lambda position: math.floor(position + _HALF),
    "round_prefer_floor": lambda position: math.ceil(position - _HALF),
}


@dataclass(frozen=True)
class ResizeToUpsample(Pass):
    """Write Resize by integer factors as Upsample, if both compute the same."""

    name: ClassVar[str] = "resize-to-upsample"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes("Resize"):
            scales = _scales(node)
            if scales is None:
                trace.skip(node, "its scales are known only at run time")
                continue
            reason = _declined(node, scales)
            if reason:
                trace.skip(node, reason)
                continue
            label, mode = describe(node), node.attrs.get("mode", "nearest")
            name = f"{node.name or node.outputs[0].name}.scales"
            factors = constant(model, name, np.array(scales, np.float32))
            replace_by_node(node, UPSAMPLE, [node.inputs[0], factors], model, {"mode": mode})
            trace.rewrote(label, f"{mode}, by {' x '.join(f'{s:g}' for s in scales)}")


def _scales(node: gs.Node) -> list[float] | None:
    """One factor per dimension; None if only running the model shows them."""
    shape, axes = node.inputs[0].shape, node.attrs.get("axes")
    factors, sizes = inputs_of(node, 4)[2:]
    given = array(node.inputs[1] if _is_first_version(node) else factors)
    if given is None or not given.size:
        given = array(sizes)
        dims = None if shape is None else [shape[a] for a in axes or range(len(shape))]
        if given is None or dims is None or not all(isinstance(d, int) and d for d in dims):
            return None
        given = given / np.array(dims, np.float64)
    if axes is None:
        return [float(s) for s in given]
    if shape is None:
        return None
    whole = [1.0] * len(shape)
    for axis, factor in zip(axes, given, strict=True):
        whole[axis] = float(factor)
    return whole


def _is_first_version(node: gs.Node) -> bool:
    """Whether it is Resize of opset 10, with Upsample's coordinates and no others."""
    return len(node.inputs) == 2


def _declined(node: gs.Node, scales: list[float]) -> str:
    """Why Upsample would compute something else; '' if it computes the same."""
    odd = [s for s in scales if s < 1 or not float(s).is_integer()]
    if odd:
        return f"it scales by {odd[0]:.6g}, not by an integer factor"
    if node.attrs.get("antialias"):
        return "it filters (antialias)"
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "it keeps the aspect ratio"
    mode = node.attrs.get("mode", "nearest")
    if mode not in ("nearest", "linear"):
        return f"Upsample has no mode '{mode}'"
    old = _is_first_version(node)
    at = "asymmetric" if old else node.attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode == "linear":
        if at == "asymmetric" or all(s == 1 for s in scales):
            return ""
        return f"linear interpolation with coordinates '{at}' is not that of Upsample"
    rounding = "floor" if old else node.attrs.get("nearest_mode", "round_prefer_floor")
    if all(_takes_own(int(s), at, rounding) for s in scales):
        return ""
    return f"coordinates '{at}' with rounding '{rounding}' choose other neighbours than Upsample"


def _takes_own(scale: int, at: str, rounding: str) -> bool:
    """Whether all outputs k * scale + r read element k."""
    if scale == 1 and at != "tf_crop_and_resize":
        return True
    if at not in _OFFSETS or rounding not in _ROUND:
        return False
    before, after = _OFFSETS[at]
    return not any(_ROUND[rounding]((r + before) / scale - after) for r in range(scale))
