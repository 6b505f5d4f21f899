"""Coarser steps for channels whose weights are next to nothing beside their bias.

Training switches channels off: their weights are like 1e-12, and so are the steps of their grids.
In steps of sx * sw the bias is then beyond int32, and integer kernels cut it. A product of 8-bit
codes is at most 127 * 255 such steps, 0.002 % of the bias, so the channel gets the step that the
bias needs (see `onnxq.quant.bias_room`), in which its weights are mostly 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of, set_params
from onnxq.canonical.quantized_weights import on_grid
from onnxq.edit import describe, new_values, producer, set_input
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.graph.dequantized import unread
from onnxq.operators.weight_axis import BIAS_INPUT, weight_axis
from onnxq.pass_ import Pass, Trace
from onnxq.quant.bias_room import MOST_BITS, ROOM, least_steps
from onnxq.quant.qparams import Array, QParams
from onnxq.quant.qtypes import qtype


@dataclass(frozen=True)
class CoarsenDeadChannels(Pass):
    """Give channels with tiny weights steps in which their bias fits int32."""

    name: ClassVar[str] = "coarsen-dead-channels"
    lossy: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("fold-batch-norm", "fold-affine", "propagate-ranges")

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes(*BIAS_INPUT):
            at = BIAS_INPUT[node.op]
            bias = array(node.inputs[at]) if at < len(node.inputs) else None
            data, grid = (producer(t, FAKE_QUANTIZE) for t in node.inputs[:2])
            weight = None if grid is None else unread(grid.inputs[0])
            if bias is None or data is None or grid is None or weight is None:
                continue
            x, w = params_of(data), params_of(grid)
            dead = _dead(node, x, w, bias, len(weight.shape))
            if dead is None or not dead.any():
                continue
            if len(grid.outputs[0].outputs) > 1:
                trace.skip(node, f"other layers read '{w.tensor}' too")
                continue
            least = least_steps(bias, float(x.scale), w.scale.shape)
            wide = w.with_(scale=np.where(dead, least, w.scale).astype(np.float32))
            # From the values on the first grid: those are what was trained.
            set_input(grid, 0, new_values(model, grid.inputs[0], on_grid(w, weight), grid))
            set_params(model, grid, wide)
            count = int(dead.sum())
            trace.rewrote(
                f"'{w.tensor}'",
                f"{count} channel{'s' * (count != 1)} of {describe(node)} with next to no weights: "
                "steps in which the bias fits int32",
            )


def _dead(node: gs.Node, x: QParams, w: QParams, bias: Array, rank: int) -> Array | None:
    """The channels whose bias exceeds int32; None if the layer has no integer kernel."""
    kinds = (x.qtype, w.qtype)
    if any(kind.floating or kind.bits > MOST_BITS for kind in kinds) or x.axis is not None:
        return None
    layout = weight_axis(node, rank)
    if w.block or layout is None or w.axis not in (None, layout.axis) or layout.groups != 1:
        return None
    least = least_steps(bias, float(x.scale), w.scale.shape)
    return np.asarray(w.scale * (qtype("int32").hi / ROOM) < least)
