"""Scales that are powers of two, for targets that shift instead of multiplying.

A grid of scale s = 2^-f is a fixed point format with f bits behind the point. Scales that are not
powers of two become the next above, which covers the same range, or the one below where that is
nearer: for activations by the largest difference over the range, for weights by the mean squared
one over their values. Zero points of 0 stay 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.analysis.signs import Signs
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of, set_params
from onnxq.canonical.grid_fit import covering_fit, largest_error
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.scheme import QSpec
from passes.fit_grids import data_of, put_values


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
            if not (self.weights if params.role is Role.WEIGHT else self.activations):
                continue
            spec = _own_rules(params)
            if not any(spec.violations(params)):
                continue
            read = data_of(node, params, signs)
            fit = covering_fit(params, spec, **read.known())
            if fit is None:
                trace.skip(node, f"its codes are {params.qtype}")
                continue
            error = largest_error(params, fit, **read.known())
            put_values(model, node, read)
            set_params(model, node, fit)
            trace.rewrote(node, f"'{params.tensor}' off by up to {100 * error:.2g} % of its range")


def _own_rules(params: QParams) -> QSpec:
    """The grid as it is, but for its scales."""
    return QSpec(
        (params.qtype.name,),
        symmetric=not params.zero_point.any(),
        per_channel=True,
        blocks=True,
        lo=params.lo,
        hi=params.hi,
        power_of_two=True,
    )
