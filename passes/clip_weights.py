"""Clamp weights to the range of their grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.canonical.quantized_weights import clamp, quantized_weights
from onnxq.edit import new_values, set_input
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class ClipWeights(Pass):
    """Clamp each constant weight to the range its FakeQuantize can represent.

    A tool that derives a weight's scale from its largest value then finds the trained scale.
    Values beyond the range have the code at its end before and after, so no result changes.
    """

    name: ClassVar[str] = "clip-weights"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node, params, weight in quantized_weights(model):
            clipped, changed = clamp(params, weight)
            if not changed:
                trace.skip(node, f"all values of '{params.tensor}' are within its range")
                continue
            set_input(node, 0, new_values(model, node.inputs[0], clipped, node))
            trace.rewrote(node, f"{changed} of {weight.size} values of '{params.tensor}' clamped")
