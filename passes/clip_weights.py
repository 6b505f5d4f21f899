"""Weights cut to the range of their grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.constants import array, is_constant
from onnxq.edit import constant, set_input
from onnxq.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.qparams import Array, QParams


@dataclass(frozen=True)
class ClipWeights(Pass):
    """Clamp each constant weight to the range its FakeQuantize can represent.

    A tool that derives a weight's scale from its largest value then finds the trained scale.
    Weights beyond the range have the code at its end before and after, so nothing computed from
    them changes.
    """

    name: ClassVar[str] = "clip-weights"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes(FAKE_QUANTIZE):
            source = node.inputs[0]
            if not is_constant(source):
                continue
            weight, params = array(source), params_of(node)
            assert weight is not None
            low, high = _bounds(params, weight)
            clipped = np.clip(weight, low, high)
            changed = int(np.count_nonzero(clipped != weight) - np.count_nonzero(weight != weight))
            if not changed:
                trace.skip(node, f"all values of '{source.name}' lie within its range")
                continue
            set_input(node, 0, constant(model, source.name, clipped.astype(weight.dtype)))
            trace.rewrote(node, f"{changed} of {weight.size} values of '{source.name}' clamped")


def _bounds(params: QParams, weight: Array) -> tuple[Array, Array]:
    """The ends of the range in the weight's type, rounded outwards where the code would move."""
    scale, zero_point = params.broadcast(weight.shape)
    assert params.lo is not None and params.hi is not None
    ends = []
    for code, outwards in ((params.lo, -np.inf), (params.hi, np.inf)):
        steps = code - zero_point
        with np.errstate(over="ignore"):  # a range beyond the type has no end there: inf
            end = (steps.astype(np.float32) * scale).astype(weight.dtype)
            kept = np.rint(end.astype(np.float32) / scale) == steps
            ends.append(np.where(kept, end, np.nextafter(end, weight.dtype.type(outwards))))
    return ends[0], ends[1]
