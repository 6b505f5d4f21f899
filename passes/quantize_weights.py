"""Quantize weights from their own values: one symmetric scale per output channel.

    scale = max |w| / 127 over the channel,   codes -127..127,   zero point 0

This is what TensorRT computes for weights if it is given only ranges of activations. A channel of
zeros has no range; it takes the scale 1, which keeps it zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, make
from onnxq.edit import insert_at, producer
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.weight_axis import LINEAR_OPS, weight_axis
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.quant.qtypes import qtype


@dataclass(frozen=True)
class QuantizeWeights(Pass):
    """Give unquantized weights of linear layers an int8 quantizer, absmax per channel."""

    name: ClassVar[str] = "quantize-weights"
    after: ClassVar[tuple[str, ...]] = ("apply-qparams", "fold-batch-norm", "fold-affine")

    def run(self, model: Model, trace: Trace) -> None:
        groups: dict[tuple[int, int], list[gs.Node]] = {}
        for node in model.nodes(*LINEAR_OPS):
            if len(node.inputs) < 2 or producer(node.inputs[1], FAKE_QUANTIZE) is not None:
                continue
            weight = node.inputs[1]
            value = array(weight)
            if value is None:
                continue
            layout = weight_axis(node, value.ndim)
            why = _refusal(value)
            if layout is None or why:
                trace.skip(node, why or "its weight has no axis of output channels")
                continue
            groups.setdefault((id(weight), layout.axis), []).append(node)
        for (_, axis), nodes in groups.items():
            weight = nodes[0].inputs[1]
            _quantize(model, weight, axis, nodes)
            trace.rewrote(f"'{weight.name}'", f"int8, absmax / 127 along axis {axis}")


def _quantize(model: Model, weight: gs.Tensor, axis: int, nodes: list[gs.Node]) -> None:
    value = array(weight)
    assert value is not None
    params = _absmax(weight.name, value, axis)
    insert_at(
        model,
        weight,
        lambda x, y, graph: make(model, x, y, params, graph, dtype=value.dtype),
        [(node, 1) for node in nodes],
        leaves=False,
    )


def _refusal(value: Array) -> str:
    if value.dtype not in (np.float32, np.float16):
        return f"its weight is {value.dtype}"
    if not value.size or not np.all(np.isfinite(value)):
        return "its weight is empty or contains values that are not finite"
    return ""


def _absmax(name: str, value: Array, axis: int) -> QParams:
    rest = tuple(i for i in range(value.ndim) if i != axis)
    top = np.abs(value.astype(np.float64)).max(axis=rest)
    scale = (top / 127).astype(np.float32)
    # Below the smallest normal number a step is no longer exact: such a channel is zero.
    scale = np.where(scale < np.finfo(np.float32).tiny, np.float32(1), scale)
    return QParams(name, qtype("int8"), scale, np.zeros(()), axis=axis, lo=-127, role=Role.WEIGHT)
