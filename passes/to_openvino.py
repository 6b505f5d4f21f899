"""The canonical form to OpenVINO's FakeQuantize.

    FakeQuantize(x, s, z) over lo..hi    FakeQuantize(x, il, ih, il, ih), levels = hi - lo + 1
                                         il = (lo - z) * s, ih = (hi - z) * s

Bounds per channel have the rank of the tensor ([C,1,1,1]). They are float32. If the ends do not
determine the scale to the bit, or the type of the codes, the node's metadata states it, which
OpenVINO ignores. Biases stay float: OpenVINO derives their codes itself. Bias rows stay in the
table.

OpenVINO rounds (x - il) / (ih - il) * (L - 1): inputs half way between two codes, and those that
float32 cannot distinguish from that, may get the other neighbour there, so this writer is not
exact.

One scale per block, float8 codes and tensors of types other than float32 cannot be written. All of
them are refused in one error that names them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize
from onnxq.dialects import openvino
from onnxq.dialects.writable import check_writable, no_broadcast, no_plain_grid
from onnxq.edit import constant, replace_by_node
from onnxq.graph import Model
from onnxq.operators.broadcast_shape import rank_of, spread
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams, Role
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, QUANT_TYPE, SCALE, add_metadata


@dataclass(frozen=True)
class ToOpenvino(Pass):
    """Write every FakeQuantize as OpenVINO's, with ends and levels."""

    name: ClassVar[str] = "to-openvino"
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        found = [(n, fake_quantize.params_of(n)) for n in model.nodes(fake_quantize.FAKE_QUANTIZE)]
        check_writable(
            "OpenVINO's FakeQuantize",
            ((params, _problem(node, params)) for node, params in found),
            fix="use integer grids with one scale per tensor or channel; to-qdq writes "
            "everything, and OpenVINO reads that as well",
        )
        for node, params in found:
            trace.rewrote(node, f"{_levels(params)} levels")
            _write(node, params, model)
        if found:
            model.opsets.setdefault(openvino.DOMAIN, 1)
            model.qparams.rows = model.qparams.of(Role.BIAS)


def _levels(params: QParams) -> int:
    assert params.lo is not None and params.hi is not None
    return params.hi - params.lo + 1


def _problem(node: gs.Node, params: QParams) -> str:
    if why := no_plain_grid(params):
        return why
    if node.inputs[1].dtype != np.float32:
        return (
            f"it is {np.dtype(node.inputs[1].dtype)}, which cannot represent the ends of its range"
        )
    if why := no_broadcast(params, node.inputs[0]):
        return why
    with np.errstate(over="ignore"):
        low, high = openvino.ends(params)
    level = None
    if np.all(np.isfinite(low) & np.isfinite(high)):
        level = openvino.zero_level(low, high, _levels(params))
    if level is None or not np.array_equal(level, params.zero_point - params.lo):
        return "float32 cannot represent the ends of its range"
    return ""


def _write(node: gs.Node, params: QParams, model: Model) -> None:
    x, levels = node.inputs[0], _levels(params)
    base = node.name or node.outputs[0].name
    low, high = openvino.ends(params)
    bounds = [
        constant(model, f"{base}.{name}", spread(end, params.axis, rank_of(x)))
        for name, end in (("low", low), ("high", high))
    ]
    inputs = [x, *bounds, *bounds]
    made = replace_by_node(node, openvino.FAKE_QUANTIZE, inputs, model, {"levels": levels})
    zero = params.zero_point - params.lo
    kind, lo = openvino.codes(zero, levels)
    if (fake_quantize.container(params.qtype), params.lo) != (kind, lo):
        entries = {QUANT_TYPE: str(fake_quantize.container(params.qtype))}
        entries |= {QUANT_MIN: str(params.lo), QUANT_MAX: str(params.hi)}
        add_metadata(made, entries)
    if not np.array_equal(openvino.grid_scale(low, high, levels, zero), params.scale):
        add_metadata(made, {SCALE: json.dumps(params.scale.tolist())})
