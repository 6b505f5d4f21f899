"""Give biases the integer codes that an accumulator adds: one row of the table each.

A layer with input scale sx and weight scale sw accumulates codes in steps of sx * sw, so its bias
is added as the int32 code round(b / (sx * sw)), zero point 0: per channel if sw is. A code that
does not fit 32 bits is not clipped: the bias stays float, with the reason.

Sums of 16-bit codes have steps so small that this happens. If such layers run in float anyway, any
step will do for their biases: `coarser` doubles it as often as needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.edit import describe, producer, read_by
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.weight_axis import BIAS_INPUT, weight_axis
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams, Reader, Role
from onnxq.quant.qtypes import qtype


@dataclass(frozen=True)
class QuantizeBias(Pass):
    """Give biases of quantized layers int32 codes with scale = input scale * weight scale.

    With `coarser`, biases of layers with more than 8 bits take a multiple of it if their codes
    would not fit.
    """

    name: ClassVar[str] = "quantize-bias"
    needs_canonical: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("fold-batch-norm", "fold-affine")

    coarser: bool = False

    def run(self, model: Model, trace: Trace) -> None:
        others = [row for row in model.qparams if row.role is not Role.BIAS]
        old = {row.tensor: row for row in model.qparams.of(Role.BIAS)}
        new: list[QParams] = []
        for node in model.nodes(*BIAS_INPUT):
            index = BIAS_INPUT[node.op]
            if len(node.inputs) <= index or not node.inputs[index].name:
                continue
            bias = node.inputs[index]
            row = _row(node, bias, read_by(node, index), self.coarser)
            before = old.get(bias.name)
            if isinstance(row, str):
                trace.skip(node, row)
                if before is not None:
                    new.append(before)
                continue
            new.append(row)
            if before is None or not row.same_grid(before):
                trace.rewrote(f"'{bias.name}'", f"int32 bias of {describe(node)}")
        # This drops the rows of biases that folding has replaced.
        model.qparams.rows = others + new


def _row(node: gs.Node, bias: gs.Tensor, use: Reader, coarser: bool) -> QParams | str:
    """The row for one bias, or why there is none."""
    values = array(bias)
    if values is None:
        return f"its bias '{bias.name}' is computed at run time"
    if not isinstance(bias, gs.Constant):
        return f"its bias '{bias.name}' is the output of a node; run 'fold-constants' first"
    if values.ndim != 1:
        return f"its bias has shape {values.shape}, not one value per channel"
    if node.op == "Gemm" and (node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)) != (1, 1):
        return "its alpha or beta is not 1"
    data, weight = (producer(t, FAKE_QUANTIZE) for t in node.inputs[:2])
    if data is None or weight is None:
        return f"its {'input' if data is None else 'weight'} is not quantized"
    x, w = params_of(data), params_of(weight)
    floating = next((p.qtype for p in (x, w) if p.qtype.floating), None)
    if floating is not None:
        return f"its layer multiplies {floating} codes, whose sums are floats"
    if x.axis is not None:
        return "its input has one scale per channel"
    if w.axis is not None:
        layout = weight_axis(node, len(weight.inputs[0].shape or ()))
        if w.block or layout is None or layout.axis != w.axis or layout.groups != 1:
            return "its weight's scales are not along its output channels"
    # One product in double, rounded once: runtimes compare a bias scale with it.
    step = x.scale.astype(np.float64) * w.scale.astype(np.float64)
    if coarser and max(x.qtype.bits, w.qtype.bits) > 8:
        step = _fitting(step, values)
    scale = step.astype(np.float32)
    if not np.all(scale >= np.finfo(np.float32).tiny):
        return "input scale * weight scale underflows float32"
    codes = np.abs(values.astype(np.float64) / scale)
    if not np.all(codes <= qtype("int32").hi):
        worst = int(np.argmax(codes))
        return (
            f"channel {worst} of its bias is {codes[worst]:.3g} steps, which exceeds int32: the "
            "bias stays float"
        )
    return QParams(
        tensor=bias.name,
        qtype=qtype("int32"),
        scale=scale,
        zero_point=np.zeros((), np.int64),
        axis=None if w.axis is None else 0,
        role=Role.BIAS,
        readers=(use,) if len(bias.outputs) > 1 else None,
        source=node.name,
    )


def _fitting(step: Array, values: Array) -> Array:
    """`step`, doubled until the codes of the values fit int32."""
    steps = np.abs(values.astype(np.float64)) / step
    # The limit is lower by as much as rounding the step to float32 moves it.
    excess = steps / (qtype("int32").hi * (1 - 2.0**-23))
    if step.ndim == 0:
        excess = excess.max(initial=0.0)
    return np.asarray(step * 2.0 ** np.ceil(np.log2(np.maximum(excess, 1.0))))
