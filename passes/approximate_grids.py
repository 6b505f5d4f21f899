"""Move quantizers onto grids that a target has, as close to the old ones as its rules allow.

    asymmetric -> symmetric, per channel -> per tensor, 16 bits -> 8, any scale -> power of two

This changes what the network computes. Each tensor is reported with the largest difference between
the two grids, as a share of its range; the conversion measures its effect on the outputs. A weight
is rounded from its trained value on the old grid, not from the float that grid was applied to.
`fit-grids` comes first and restates what needs no change of values.

A quantizer whose zero point is its lowest code clamps like a Relu; one around zero does not. If the
new grid reaches far beyond an end that the old one clamped to, a Relu or Clip before it clamps
instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.analysis.signs import Signs
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of, set_params
from onnxq.canonical.grid_fit import clamp_error, covering_fit, largest_error, lost_clamp
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams
from onnxq.quant.scheme import QSpec
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
            approximate(model, node, params, rules[params.role], signs, trace)


def approximate(
    model: Model,
    node: gs.Node,
    params: QParams,
    spec: QSpec,
    signs: Signs,
    trace: Trace,
    keep_clamps: bool = True,
) -> None:
    """Move a quantizer that breaks the rules of `spec` onto the nearest grid within them.

    With `keep_clamps`, a Relu or Clip clamps where the old grid did and the new one does not.
    """
    if not any(spec.violations(params)):
        return
    read = data_of(node, params, signs)
    values, positive = read.values, read.non_negative
    fit = covering_fit(params, spec, values=values, non_negative=positive)
    if fit is None or any(spec.violations(fit)):
        old = f"that of '{params.tensor}' ({params.qtype})"
        trace.skip(node, f"no grid allowed by the rules is close to {old}")
        return
    error = largest_error(params, fit, values=values, non_negative=positive)
    put_values(model, node, read)
    outside = ""
    if keep_clamps and read.weight is None:
        clamp = lost_clamp(params, fit, non_negative=positive)
        beyond = clamp_error(params, fit, non_negative=positive, clamp=clamp)
        if clamp is not None:
            clamp_input(model, node, *clamp)
        if beyond > error:
            outside = f" and {100 * beyond:.2g} % where it was clamped"
    set_params(model, node, fit)
    trace.rewrote(
        node,
        f"'{params.tensor}' off by up to {100 * error:.2g} % of its range{outside}: "
        f"{shown(params)} -> {shown(fit)}",
    )
