"""Codes that are written with one grid and read with another: two quantizers and a factor.

    q = Q(x; s1, z1),  y = (q - z2) * s2

is, bit for bit, the result of this chain:

    a = FakeQuantize(x; s1, z1)            (q - z1) * s1
    b = a * (s2 / s1)                      (q - z1) * s2
    c = b + (z1 - z2) * s2                 (q - z2) * s2
    y = FakeQuantize(c; s2, z2)

Every step of float32 errs by 2^-24 of its result: a, the factor, b, the summand, c and the
division inside the last quantizer. All results are at most 2^16 steps, so c / s2 is less than
6 * 2^16 * 2^-24 < 0.03 off the integer q - z2, which rounding finds; q lies in the range, since
both ends store the same type. The same is true of float8, where z1 = z2 = 0 and neighbours are a
sixteenth of a value apart. It needs scales whose products neither overflow nor lose digits.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize
from onnxq.edit import constant, new_node, variable
from onnxq.graph import Model
from onnxq.quant.qparams import Array, QParams

_SAFE = 2.0**50
"""Scales and factors between this and its inverse keep all products normal numbers."""


def why_not(first: QParams, second: QParams, dtype: np.dtype[np.generic], rank: int | None) -> str:
    """Why the chain would not be exact or cannot be written; '' if it can."""
    if dtype != np.float32:
        return f"its parameters differ from its QuantizeLinear, in {dtype}"
    if first.block or second.block:
        return "its parameters differ from its QuantizeLinear, per block"
    axes = {a for a in (first.axis, second.axis) if a is not None}
    if axes and rank is None:
        return "its parameters differ from its QuantizeLinear, per channel of an unknown shape"
    if len({a % rank for a in axes} if rank else ()) > 1:
        return "its scales run along another axis than those of its QuantizeLinear"
    for values in (first.scale, second.scale, _factor(first, second)):
        if not np.all((values >= 1 / _SAFE) & (values <= _SAFE)):
            return "its scale differs too much from that of its QuantizeLinear"
    return ""


def chain(
    model: Model,
    quantized: gs.Tensor,
    result: gs.Tensor,
    first: QParams,
    second: QParams,
    rank: int | None,
    graph: gs.Graph,
    name: str,
) -> None:
    """Make `result`, on the grid `second`, from `quantized`, on the grid `first`."""
    axis = next((a for a in (first.axis, second.axis) if a is not None), None)
    steps = (first.zero_point - second.zero_point) * second.scale.astype(np.float64)
    value = quantized
    for op, operand, idle in (("Mul", _factor(first, second), 1), ("Add", steps, 0)):
        operand = operand.astype(np.float32)
        if np.all(operand == idle):
            continue
        if operand.ndim:
            assert axis is not None and rank is not None
            operand = operand.reshape([-1] + [1] * (rank - 1 - axis % rank))
        made = variable(model, f"{name}.{op.lower()}", like=quantized)
        inputs = [value, constant(model, f"{name}.{op.lower()}_operand", operand)]
        new_node(model, op, inputs, [made], name=f"{name}.{op.lower()}", graph=graph)
        value = made
    fake_quantize.make(model, value, result, second, graph, name=name, dtype=np.float32)


def _factor(first: QParams, second: QParams) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        ratio = second.scale.astype(np.float64) / first.scale.astype(np.float64)
        return np.asarray(ratio.astype(np.float32))
