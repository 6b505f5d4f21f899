"""Restate quantizers within the rules of a target, without changing a value.

Codes in another type, zero points moved to 0, equal scales per channel as one per tensor, 4-bit
codes in 8 bits, ranges as wide as their type: `onnxq.canonical.grid_fit` says when that gives the
same values. If a range was narrower than the target allows, a Clip before the quantizer does its
work. A quantizer that cannot be restated stays, and the trace names the rule that it breaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.signs import Signs
from onnxq.arrays.pieces import equal
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of, set_params
from onnxq.canonical.grid_fit import exact_fit
from onnxq.canonical.quantized_weights import is_operand
from onnxq.edit import constant, new_node, new_values, set_input, variable
from onnxq.graph import Model
from onnxq.graph.dequantized import DequantizedValues, loaded, unread
from onnxq.pass_ import Pass, Trace
from onnxq.quant.blockwise import same_codes
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.quant.scheme import QSpec
from onnxq.quant.scheme_text import parse_rules


@dataclass(frozen=True)
class GridRules:
    """The rules of a target, as options of a pass.

    They are written like 'int8/int4 symmetric per-channel blocks full-range power-of-two
    -127..127': accepted types, the preferred one first, then their properties.
    """

    weights: str = "int8 symmetric per-channel"
    activations: str = "uint8/int8"

    def by_role(self) -> dict[Role, QSpec]:
        """The rules for weights and for activations."""
        weights, activations = parse_rules(self.weights), parse_rules(self.activations)
        return {Role.WEIGHT: weights, Role.ACTIVATION: activations}


@dataclass(frozen=True)
class FitGrids(GridRules, Pass):
    """Restate quantizers within the rules of a target if that changes no value."""

    name: ClassVar[str] = "fit-grids"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        rules = self.by_role()
        signs = Signs()
        for node in model.nodes(FAKE_QUANTIZE):
            params = params_of(node)
            choices = [rules[params.role], *([rules[Role.ACTIVATION]] if is_operand(node) else [])]
            broken = [list(choice.violations(params)) for choice in choices]
            if not all(broken):
                continue
            read = data_of(node, params, signs)
            values, positive = read.values, read.non_negative
            fits = (exact_fit(params, c, values=values, non_negative=positive) for c in choices)
            fit = next(filter(None, fits), None)
            if fit is None or not _held(read, params):
                trace.skip(node, f"'{params.tensor}' breaks a rule: {'; '.join(broken[0])}")
                continue
            if fit.clip is not None:
                clamp_input(model, node, *fit.clip)
            else:
                put_values(model, node, read)
            set_params(model, node, fit.params)
            trace.rewrote(node, f"{shown(params)} -> {shown(fit.params)}")


class Data(NamedTuple):
    """The data that a quantizer reads, as far as it is known."""

    weight: Array | None
    """The values of a constant."""
    values: Array | None
    """The same on the quantizer's grid."""
    non_negative: bool


def data_of(node: gs.Node, params: QParams, signs: Signs) -> Data:
    """The data that a quantizer reads; `signs` remembers what is known of tensors."""
    weight = unread(node.inputs[0])
    if weight is None:
        return Data(None, None, signs.never_negative(node.inputs[0]))
    values = loaded(weight)
    lies = isinstance(weight, DequantizedValues) and weight.lies_on(params)
    return Data(values, values if lies else params.fake(values), False)


def _held(read: Data, params: QParams) -> bool:
    """Whether the type of a weight is precise enough to find the codes of its values again."""
    if read.weight is None or read.values is None:
        return True
    return same_codes(params, read.values.astype(read.weight.dtype, copy=False), read.weight)


def put_values(model: Model, node: gs.Node, read: Data) -> None:
    """Let a quantizer of a weight read its values on the grid, if it does not already."""
    if read.weight is None or read.values is None:
        return
    held = read.values.astype(read.weight.dtype, copy=False)
    if not equal(held, read.weight):
        set_input(node, 0, new_values(model, node.inputs[0], held, node))


def clamp_input(model: Model, node: gs.Node, low: float, high: float) -> None:
    """Clamp the input of a quantizer to low..high; from 0 to infinity that is a Relu."""
    x = node.inputs[0]
    base = node.name or node.outputs[0].name
    op, ends = "Relu", []
    if (low, high) != (0.0, np.inf):
        model.require_opset(11, "Clip with bounds as inputs")
        op, kind = "Clip", node.inputs[1].dtype or np.float32
        bounds = {"min": low, "max": high}
        ends = [constant(model, f"{base}.{k}", np.array(v, kind)) for k, v in bounds.items()]
    clipped = variable(model, f"{x.name}.clipped", like=x)
    new_node(model, op, [x, *ends], [clipped], name=f"{base}.{op.lower()}", graph=node.owner)
    set_input(node, 0, clipped)


def shown(params: QParams) -> str:
    """A grid in a few words."""
    zero = params.zero_point
    zeros = f"{zero.min()}" if not np.ptp(zero) else f"{zero.min()}..{zero.max()}"
    per = "per block" if params.block else "per tensor" if params.axis is None else "per channel"
    scale = f"scale {float(params.scale):.6g}" if params.scale.size == 1 else per
    return f"{params.qtype} {params.lo}..{params.hi}, zero point {zeros}, {scale}"
