"""Weights quantized from their own values: one symmetric scale per output channel.

    scale = max |w| / 127 over the channel,   codes -127..127,   zero point 0

This is what TensorRT computes for weights when it is given ranges of activations only. A channel
of zeros has no range; it takes the scale 1, which keeps it zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.edit import insert_at, producer, users
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.weight_axis import LINEAR_OPS, weight_axis
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.quant.qtypes import qtype


@dataclass(frozen=True)
class QuantizeWeights(Pass):
    """Give weights of linear layers that have no quantizer an int8 one, absmax per channel."""

    name: ClassVar[str] = "quantize-weights"
    after: ClassVar[tuple[str, ...]] = ("apply-qparams", "fold-batch-norm", "fold-affine")

    def run(self, model: Model, trace: Trace) -> None:
        readers: dict[tuple[int, int], list[gs.Node]] = {}
        weights: dict[int, gs.Tensor] = {}
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
            weights[id(weight)] = weight
            readers.setdefault((id(weight), layout.axis), []).append(node)
        for (key, axis), nodes in readers.items():
            self._quantize(model, weights[key], axis, nodes)
            trace.rewrote(f"'{weights[key].name}'", f"int8, absmax / 127 along axis {axis}")

    def _quantize(self, model: Model, weight: gs.Tensor, axis: int, nodes: list[gs.Node]) -> None:
        value = array(weight)
        assert value is not None
        params = _absmax(weight.name, value, axis)
        asked = {id(node) for node in nodes}
        uses = [(node, i) for node, i in users(weight) if i == 1 and id(node) in asked]
        insert_at(
            model,
            weight,
            lambda x, y, graph: fake_quantize.make(model, x, y, params, graph, dtype=value.dtype),
            uses,
            False,
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
    kind = qtype("int8")
    return QParams(name, kind, scale, np.zeros(()), axis=axis, lo=-127, role=Role.WEIGHT)
