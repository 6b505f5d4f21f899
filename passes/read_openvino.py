"""OpenVINO's FakeQuantize to the canonical form.

    equal input and output ends          FakeQuantize; scale and zero point from the ends
    output = input, rescaled             FakeQuantize -> Mul(output step / input step)

`onnxq.dialects.openvino` contains the formula, how the scale comes back exactly, and the rounding
that is allowed for. Zero must be one of the levels in both ranges: a grid without an exact zero, or
one that moves it, is declined.

MQBench's newer exporter writes one bound per output channel as a plain vector, which does not
broadcast against the weight. It means the output-channel axis, if all layers that read the weight
agree on that axis.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize
from onnxq.dialects import openvino
from onnxq.dialects.node_rewrite import Declined, attempt, known_input
from onnxq.edit import constant, drop_domains, new_node, remove, users, variable
from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.broadcast_shape import per_channel, rank_of, spread
from onnxq.operators.weight_axis import weight_axis
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams
from onnxq.quant.qtypes import QTYPES
from onnxq.storage.node_metadata import QUANT_MIN, QUANT_TYPE, SCALE, metadata

OPS = (openvino.FAKE_QUANTIZE, "FakeQuantize")
_BOUNDS = ("lower input bound", "upper input bound", "lower output bound", "upper output bound")


@dataclass(frozen=True)
class ReadOpenvino(Pass):
    """Read OpenVINO's FakeQuantize (ends and levels) as the canonical one (scale, zero point)."""

    name: ClassVar[str] = "read-openvino"
    dialect: ClassVar[str] = "OpenVINO FakeQuantize"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        vectors: list[str] = []
        for node in model.nodes(*OPS):
            attempt(node, trace, partial(_read, node, model, vectors))
        if vectors:
            names = ", ".join(f"'{name}'" for name in vectors)
            trace.note(
                f"{names}: the bounds are plain vectors, which do not broadcast against the "
                "weight; read as one per output channel"
            )
        if trace.rewrites:
            drop_domains(model, openvino.DOMAIN)


def _read(node: gs.Node, model: Model, vectors: list[str]) -> str:
    x = node.inputs[0]
    levels = int(node.attrs.get("levels", 0))
    if levels < 2:
        raise QParamsError(
            f"tensor '{x.name}': {levels} levels do not make a grid", fix="export the model again"
        )
    if levels > openvino.MOST_LEVELS:
        raise Declined(f"its {levels} levels need more than 16 bits")
    bounds = [_bound(node, index, what, vectors) for index, what in enumerate(_BOUNDS, start=1)]
    low, high, out_low, out_high = bounds
    try:
        np.broadcast_shapes(*(b.shape for b in bounds))
    except ValueError as error:
        raise QParamsError(
            f"tensor '{x.name}': its bounds do not match ({error})", fix="export the model again"
        ) from error
    if np.any(low >= high):
        raise QParamsError(
            f"tensor '{x.name}': its lower input bound is not below the upper one",
            fix="recalibrate this tensor (an all-zero range gives such bounds), "
            "or leave it unquantized",
        )
    zero = _zero_level(low, high, levels, "input")
    found = per_channel((low, high, zero), rank_of(x))
    if found is None:
        raise Declined(
            f"its bounds of shape {list(low.shape)} and {list(high.shape)} do not vary along one "
            "axis of its input"
        )
    (lows, highs, zeros), axis = found
    params = _params(node, lows, highs, zeros.astype(np.int64), axis, levels)
    params.check_shape(x.shape)
    detail = f"{params.qtype} {params.lo}..{params.hi}"
    detail += " per channel" if axis is not None else ""
    out = result = node.outputs[0]
    name = node.name or f"{out.name}.fake_quantize"
    rescaled = not (np.array_equal(low, out_low) and np.array_equal(high, out_high))
    if rescaled:
        ratio = _ratio(out_low, out_high, zero, spread(params.scale, axis, rank_of(x)), levels)
        factor = constant(model, f"{name}.rescale", ratio)
        result = variable(model, f"{out.name}.unscaled", like=out)
        detail += ", then rescaled"
    remove(node, model)
    fake_quantize.make(model, x, result, params, node, name=name)
    if rescaled:
        new_node(model, "Mul", [result, factor], [out], name=f"{name}.rescale", instead_of=node)
    return detail


def _bound(node: gs.Node, index: int, what: str, vectors: list[str]) -> Array:
    """A bound that broadcasts against the input; the module explains plain vectors."""
    tensor, bound = known_input(node, index, what)
    x = node.inputs[0]
    if bound.dtype.kind != "f" or not np.all(np.isfinite(bound)):
        raise QParamsError(
            f"tensor '{x.name}': its {what} '{tensor.name}' is not a finite number",
            fix="recalibrate this tensor, or leave it unquantized",
        )
    bound = bound.astype(np.float32)
    value = array(x)
    if bound.ndim != 1 or bound.size == 1 or value is None or value.shape[-1:] == bound.shape:
        return bound
    layouts = [weight_axis(n, value.ndim) for n, i in users(node.outputs[0]) if i == 1]
    axes = {layout.axis if layout is not None else None for layout in layouts}
    axis = axes.pop() if len(axes) == 1 and len(layouts) == len(node.outputs[0].outputs) else None
    if axis is None or value.shape[axis] != bound.size:
        raise QParamsError(
            f"tensor '{x.name}': bounds of shape {list(bound.shape)} do not broadcast against "
            f"shape {list(value.shape)}",
            fix="write bounds per channel in the rank of the tensor, such as [C,1,1,1]",
        )
    if x.name not in vectors:
        vectors.append(x.name)
    shaped = spread(bound, axis, value.ndim)
    assert shaped is not None
    return shaped


def _zero_level(low: Array, high: Array, levels: int, which: str) -> Array:
    zero = openvino.zero_level(low, high, levels)
    if zero is None:
        raise Declined(
            f"0 is between two levels of its {which} range, so there is no integer zero point"
        )
    if np.any((zero < 0) | (zero > levels - 1)):
        raise Declined(f"0 is outside its {which} range")
    return zero


def _params(
    node: gs.Node, low: Array, high: Array, zero: Array, axis: int | None, levels: int
) -> QParams:
    """The grid; the node's metadata is used if it agrees with the bounds."""
    stated = metadata(node)
    kind, lo = openvino.codes(zero, levels)
    known, first = QTYPES.get(stated.get(QUANT_TYPE, "")), _integer(stated.get(QUANT_MIN, ""))
    if known is not None and first is not None and not known.floating:
        matches = known.lo <= first and first + levels - 1 <= known.hi
        kind, lo = (known, first) if matches else (kind, lo)
    scale = openvino.grid_scale(low, high, levels, zero)
    params = QParams(
        node.inputs[0].name, kind, scale, lo + zero, axis=axis, lo=lo, hi=lo + levels - 1
    )
    exact = _floats(stated.get(SCALE, ""))
    if exact is not None and exact.shape == scale.shape and np.all(exact > 0):
        better = params.with_(scale=exact)
        if all(map(np.array_equal, openvino.ends(better), (low, high))):
            return better
    return params


def _integer(text: str) -> int | None:
    return int(text) if text.removeprefix("-").isdecimal() else None


def _floats(text: str) -> Array | None:
    """The numbers in `text`, which is JSON; None if it is something else."""
    try:
        return np.array(json.loads(text), np.float32)
    except ValueError:
        return None


def _ratio(low: Array, high: Array, zero: Array, scale: Array | None, levels: int) -> Array:
    """The factor that turns the input grid into the output grid; declines if there is none."""
    if np.any(low == high):
        raise Declined("its output range is empty")
    moved = _zero_level(low, high, levels, "output")
    if np.any(moved != zero):
        raise Declined("zero is at different levels of its input and output ranges")
    assert scale is not None
    step = (high.astype(np.float64) - low.astype(np.float64)) / (levels - 1)
    return np.asarray(step / scale, np.float32)
