"""Round scales to powers of two, for targets that shift instead of multiplying.

A grid of scale s = 2^-f is a fixed point format with f bits after the point. Scales that are not
powers of two become the next above, which covers the same range, or the one below if that is
closer: for activations by the largest difference over the range, for weights by the mean squared
one over their values. Zero points of 0 stay 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.analysis.signs import Signs
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.scheme import QSpec
from passes.approximate_grids import approximate


@dataclass(frozen=True)
class PowerOfTwoScales(Pass):
    """Round the scales of weights and activations to powers of two."""

    name: ClassVar[str] = "power-of-two-scales"
    lossy: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    weights: bool = True
    activations: bool = True

    def run(self, model: Model, trace: Trace) -> None:
        signs = Signs()
        for node in model.nodes(FAKE_QUANTIZE):
            params = params_of(node)
            if self.weights if params.role is Role.WEIGHT else self.activations:
                rules = _own_rules(params)
                approximate(model, node, params, rules, signs, trace, keep_clamps=False)


def _own_rules(params: QParams) -> QSpec:
    """Rules that allow the grid as it is, except for its scales."""
    return QSpec(
        (params.qtype.name,),
        symmetric=not params.zero_point.any(),
        per_channel=True,
        blocks=True,
        lo=params.lo,
        hi=params.hi,
        power_of_two=True,
    )
