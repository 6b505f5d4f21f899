"""Declare the whole range of their type for weights that use a part of it.

Kernels are chosen by the number of levels: OpenVINO has integer ones for 16, 255 and 256, and runs
a weight of 128 levels (-64..63) in float. The weight is constant, so its values can be clamped to
its range here, and a wider range then moves none of its codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.canonical.fake_quantize import set_params
from onnxq.canonical.quantized_weights import clamp, quantized_weights
from onnxq.edit import new_values, set_input
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class FillWeightRange(Pass):
    """Widen ranges of weights such as -64..63 to those of their type; codes stay the same."""

    name: ClassVar[str] = "fill-weight-range"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        for node, params, weight in quantized_weights(model):
            kind = params.qtype
            if (params.lo, params.hi) == (kind.lo, kind.hi):
                continue
            inside, _ = clamp(params, weight)
            set_input(node, 0, new_values(model, node.inputs[0], inside, node))
            set_params(model, node, params.with_(lo=kind.lo, hi=kind.hi))
            trace.rewrote(node, f"{params.lo}..{params.hi} -> {kind.lo}..{kind.hi}")
