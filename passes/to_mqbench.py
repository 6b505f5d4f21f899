"""The canonical form to MQBench's private operators, as its classic exporter writes them.

    one scale               LearnablePerTensorAffine(x, scale, zero_point, quant_min, quant_max)
    scale per channel       FakeQuantizeLearnablePerchannelAffine(x, scale, zero_point) with
                            quant_min and quant_max as attributes and without the axis: it is 1
                            before ConvTranspose, otherwise 0
    along another axis      FixedPerChannelAffine(x, scale, zero_point, ch_axis, quant_min,
                            quant_max), which states it
    logarithmic             NNIEQuantize(x, data_max)

Scales and zero points are float32 vectors (zero points of the fixed operator are integers), bounds
and axes come from Constant nodes. The operators are in ONNX's own domain without being ONNX, so
only MQBench's tools and `read-mqbench` understand the file. One scale per block and float8 codes
have no operator there and are refused in one error that names them.

MQBench multiplies by 1/scale, FakeQuantize divides. If that would move a code of a constant, the
constant is put on the grid first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize, fake_quantize_log
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG
from onnxq.dialects import mqbench
from onnxq.dialects.writable import check_writable, no_plain_grid
from onnxq.edit import constant, new_node, new_values, replace_by_node, variable
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams, Role
from onnxq.storage.node_metadata import state_type


@dataclass(frozen=True)
class ToMqbench(Pass):
    """Write every FakeQuantize as an operator of MQBench's classic form."""

    name: ClassVar[str] = "to-mqbench"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        found = [(n, fake_quantize.params_of(n)) for n in model.nodes(FAKE_QUANTIZE)]
        check_writable(
            "MQBench's operators",
            ((params, no_plain_grid(params)) for _, params in found),
            fix="use integers with one scale per tensor or channel; to-qdq writes everything",
        )
        for node, params in found:
            _write(node, params, model, trace)
        for node in model.nodes(FAKE_QUANTIZE_LOG):
            trace.rewrote(node, mqbench.LOGARITHMIC)
            reach = np.asarray(fake_quantize_log.data_max_of(node), np.float32)
            base = node.name or node.outputs[0].name
            inputs = [node.inputs[0], _stated(model, f"{base}.data_max", reach, node)]
            replace_by_node(node, mqbench.LOGARITHMIC, inputs, model)
        # Biases have no operator of their own; the nodes state all others.
        model.qparams.rows = model.qparams.of(Role.BIAS)


def _write(node: gs.Node, params: QParams, model: Model, trace: Trace) -> None:
    base = node.name or node.outputs[0].name
    bounds: dict[str, Any] = {"quant_min": params.lo, "quant_max": params.hi}
    after: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    zero_type: Any = np.float32
    if params.axis is None:
        op, after = mqbench.PER_TENSOR, bounds
    elif params.axis == mqbench.implied_axis(node.outputs[0]):
        op, attrs = mqbench.PER_CHANNEL, bounds
    else:
        op, after = mqbench.PER_CHANNEL_OF_AXIS, {"ch_axis": params.axis, **bounds}
        zero_type = np.int64
    trace.rewrote(node, op)
    x, value = node.inputs[0], array(node.inputs[0])
    if value is not None:
        wanted = params.fake(value)
        if not np.array_equal(mqbench.on_grid(value, params, "learnable"), wanted):
            x = new_values(model, x, wanted.astype(value.dtype), node)
    scale = params.scale.reshape(-1).astype(node.inputs[1].dtype or np.float32)
    inputs = [
        x,
        constant(model, f"{base}.scale", scale),
        constant(model, f"{base}.zero_point", params.zero_point.reshape(-1).astype(zero_type)),
    ]
    for key, number in after.items():
        inputs.append(_stated(model, f"{base}.{key}", np.asarray(number, np.int64), node))
    state_type(replace_by_node(node, op, inputs, model, attrs), params)


def _stated(model: Model, name: str, value: Any, node: gs.Node) -> gs.Tensor:
    """The output of a new Constant node, one of those that replace `node`."""
    out = variable(model, name, like=None)
    attrs = {"value": gs.Constant(out.name, value)}
    new_node(model, "Constant", [], [out], name=name, attrs=attrs, instead_of=node)
    return out


__all__ = ["ToMqbench"]
