"""Resize by whole factors as Upsample, for targets that know only the older operator.

Upsample reads position i / s for output i. With i = k * s + r, r = 0 .. s - 1, nearest neighbours
are element k. Resize takes the same elements whatever its coordinates and rounding, as long as

    p(r) = r / s    (r + 1/2) / s - 1/2    (r + 1/2) / s       asymmetric, half pixel, TF's

rounds to 0 for all r. Linear interpolation is the same with asymmetric coordinates only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.upsample import UPSAMPLE
from onnxq.edit import constant, describe, inputs_of, new_node, remove
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.pass_ import Pass, Trace

_HALF = Fraction(1, 2)
_HALF_PIXEL = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")


@dataclass(frozen=True)
class ResizeToUpsample(Pass):
    """Write Resize by whole factors as Upsample, where both compute the same."""

    name: ClassVar[str] = "resize-to-upsample"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes("Resize"):
            scales = _scales(node)
            reason = "its scales are known only at run time" if scales is None else ""
            reason = reason or _declined(node, scales or [])
            if reason:
                trace.skip(node, reason)
                continue
            label, name, x, y, graph = (
                describe(node),
                node.name or node.outputs[0].name,
                node.inputs[0],
                node.outputs[0],
                node.owner,
            )
            mode = node.attrs.get("mode", "nearest")
            remove(node, model)
            factors = constant(model, f"{name}.scales", np.array(scales, np.float32))
            new_node(
                model, UPSAMPLE, [x, factors], [y], name=name, attrs={"mode": mode}, graph=graph
            )
            trace.rewrote(label, f"{mode}, by {' x '.join(f'{s:g}' for s in scales or [])}")


def _scales(node: gs.Node) -> list[float] | None:
    """One factor per dimension; None where it takes running the model to know them."""
    shape = node.inputs[0].shape
    if len(node.inputs) == 2:  # opset 10
        given = array(node.inputs[1])
        return None if given is None else [float(s) for s in given]
    _, _, factors, sizes = inputs_of(node, 4)
    axes = node.attrs.get("axes")
    given = array(factors)
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


def _declined(node: gs.Node, scales: list[float]) -> str:
    """Why Upsample would compute something else; '' where it does not."""
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
    old = len(node.inputs) == 2  # opset 10 has Upsample's coordinates and no others
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
    for r in range(scale):
        if at in _HALF_PIXEL:
            position = (r + _HALF) / scale - _HALF
        elif at == "asymmetric":
            position = Fraction(r, scale)
        elif at == "tf_half_pixel_for_nn":
            position = (r + _HALF) / scale
        else:
            return False
        if _rounded(position, rounding):
            return False
    return True


def _rounded(position: Fraction, rounding: str) -> int:
    if rounding == "floor":
        return math.floor(position)
    if rounding == "ceil":
        return math.ceil(position)
    if rounding == "round_prefer_ceil":
        return math.floor(position + _HALF)
    return math.ceil(position - _HALF)
