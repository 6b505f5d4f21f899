"""The canonical form to elementary operators that every runtime and training tool supports.

    FakeQuantize(x, s, z) of lo..hi    x -> Div s -> Round -> Add z -> Clip lo, hi -> Sub z -> Mul s

All float32, with the same numbers to the last bit (NaN, which has no code, stays NaN here): the
codes and their sums are integers below 2^24, and Add is written for z = 0 as well, since it turns
the -0 that Round returns for -0.3 into 0. Scales and zero points per channel are shaped to
broadcast, which requires the rank of the tensor. One scale per block, float8 codes and float16 data
are refused in one error that names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.dialects.writable import check_writable, no_broadcast, no_plain_grid
from onnxq.edit import constant, new_node, remove, variable
from onnxq.graph import Model
from onnxq.operators.broadcast_shape import rank_of, spread
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.storage.node_metadata import state_type


@dataclass(frozen=True)
class ToComposed(Pass):
    """Write every FakeQuantize as Div, Round, Add, Clip, Sub and Mul."""

    name: ClassVar[str] = "to-composed"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        found = [(n, fake_quantize.params_of(n)) for n in model.nodes(FAKE_QUANTIZE)]
        check_writable(
            "elementary operators",
            ((params, _problem(node, params)) for node, params in found),
            fix="use float32 data and integers with one scale per tensor or channel; to-qdq writes "
            "everything",
        )
        if found:
            model.require_opset(11, "Round, and Clip with bounds as inputs")
        for node, params in found:
            trace.rewrote(node, str(params.qtype))
            _write(node, params, model)
        # Biases stay floats; the nodes state all others.
        model.qparams.rows = model.qparams.of(Role.BIAS)


def _problem(node: gs.Node, params: QParams) -> str:
    if why := no_plain_grid(params):
        return why
    if node.inputs[1].dtype != np.float32:
        return f"it is {node.inputs[1].dtype}, in which every operator would round"
    return no_broadcast(params, node.inputs[0])


def _write(node: gs.Node, params: QParams, model: Model) -> None:
    x, out = node.inputs[0], node.outputs[0]
    base = node.name or out.name
    rank = rank_of(x)

    def shaped(name: str, values: Array) -> gs.Constant:
        found = spread(values.astype(np.float32), params.axis, rank)
        assert found is not None  # `_problem` checked it
        return constant(model, f"{base}.{name}", found)

    scale, zero = shaped("scale", params.scale), shaped("zero_point", params.zero_point)
    low = constant(model, f"{base}.lo", np.asarray(params.lo, np.float32))
    high = constant(model, f"{base}.hi", np.asarray(params.hi, np.float32))
    remove(node, model)
    at = x
    for op, others, name in (
        ("Div", [scale], "scaled"),
        ("Round", [], "rounded"),
        ("Add", [zero], "shifted"),
        ("Clip", [low, high], "codes"),
        ("Sub", [zero], "centred"),
    ):
        made = variable(model, f"{base}.{name}", like=x)
        new_node(model, op, [at, *others], [made], name=f"{base}.{op.lower()}", instead_of=node)
        at = made
    state_type(new_node(model, "Mul", [at, scale], [out], name=base, instead_of=node), params)


__all__ = ["ToComposed"]
