"""Store a quantized weight the way its layer reads it, without a Transpose in between.

    Transpose<p>(FakeQuantize<axis a>(W))  =  FakeQuantize<axis p^-1(a)>(transpose(W, p))

Rounding is element by element, so the two are equal. torch writes Linear on inputs of three or more
axes as MatMul with a transposed weight. Side files give ranges to weights of layers only, and most
compilers fuse a layer only with a weight that is next to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, make, params_of
from onnxq.edit import new_values, producer, remove, users
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.weight_axis import LINEAR_OPS
from onnxq.pass_ import Pass, Trace


@dataclass(frozen=True)
class TurnWeights(Pass):
    """Transpose the constant in place of a Transpose between a quantized weight and its layer."""

    name: ClassVar[str] = "turn-weights"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("split-shared-weights",)

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes("Transpose"):
            quantizer = producer(node.inputs[0], FAKE_QUANTIZE)
            if quantizer is None or not _is_weight(node):
                continue
            if reason := _why_it_stays(quantizer):
                trace.skip(node, reason)
                continue
            source, params = quantizer.inputs[0], params_of(quantizer)
            values = array(source)
            assert values is not None
            order = [int(axis) for axis in node.attrs.get("perm", range(values.ndim)[::-1])]
            turned = new_values(model, source, np.transpose(values, order), quantizer)
            if params.axis is not None:
                params = replace(params, axis=order.index(params.axis % values.ndim))
            result = node.outputs[0]
            remove(node, model)
            make(model, turned, result, params, node, name=quantizer.name)
            trace.rewrote(node, f"'{turned.name}' is transposed")


def _is_weight(node: gs.Node) -> bool:
    """Whether layers read the result of `node` as their weight, and nothing else reads it."""
    uses = users(node.outputs[0])
    return bool(uses) and all(user.op in LINEAR_OPS and index == 1 for user, index in uses)


def _why_it_stays(quantizer: gs.Node) -> str:
    source = quantizer.inputs[0]
    if array(source) is None:
        return "the weight is not a constant"
    if getattr(source, "overridable", False):
        return f"'{source.name}' may be replaced by the caller"
    if params_of(quantizer).block:
        return "its scales are per block"
    return ""
