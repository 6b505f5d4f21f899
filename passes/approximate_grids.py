"""Quantizers moved onto grids that a target has, as near to the old ones as its rules allow.

    asymmetric -> symmetric, per channel -> per tensor, 16 bits -> 8, any scale -> power of two

This changes what the network computes. Each tensor is reported with the largest difference between
the two grids, as a share of its range; the conversion measures its effect on the outputs.
What was trained is moved: a weight is rounded from its value on the old grid, not from the float
behind it. `fit-grids` comes first, for what needs no change of values.

A zero point at the lowest code is a Relu, and a grid around zero is none: where the new grid
reaches far beyond an end that the old one clamped to, a Relu or Clip in front clamps instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.analysis.signs import Signs
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of, set_params
from onnxq.canonical.grid_fit import clamp_error, covering_fit, largest_error, lost_clamp
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from passes.fit_grids import GridRules, clamp_input, data_of, put_values, shown


@dataclass(frozen=True)
class ApproximateGrids(GridRules, Pass):
    """Move quantizers that break the rules of a target onto the nearest grid that does not."""

    name: ClassVar[str] = "approximate-grids"
    lossy: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("fit-grids",)

    def run(self, model: Model, trace: Trace) -> None:
        rules = self.by_role()
        signs = Signs()
        for node in model.nodes(FAKE_QUANTIZE):
            params = params_of(node)
            spec = rules[params.role]
            if not any(spec.violations(params)):
                continue
            read = data_of(node, params, signs)
            fit = covering_fit(params, spec, **read.known())
            if fit is None or any(spec.violations(fit)):
                trace.skip(
                    node, f"no grid allowed by the rules is close to that of '{params.tensor}'"
                )
                continue
            error = largest_error(params, fit, **read.known())
            put_values(model, node, read)
            clamp, beyond = None, 0.0
            if read.weight is None:
                clamp = lost_clamp(params, fit, non_negative=read.non_negative)
                beyond = clamp_error(params, fit, non_negative=read.non_negative, clamp=clamp)
            if clamp is not None:
                clamp_input(model, node, *clamp)
            set_params(model, node, fit)
            outside = f" and {100 * beyond:.2g} % where it was clamped" if beyond > error else ""
            trace.rewrote(
                node,
                f"'{params.tensor}' off by up to {100 * error:.2g} % of its range{outside}: "
                f"{shown(params)} -> {shown(fit)}",
            )
