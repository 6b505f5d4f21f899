"""Integer operators in numpy, with sums that never overflow.

Sums of products of codes are computed in float64, which represents every integer up to 2^53: the
order of additions and the width of registers make no difference. A sum is then multiplied once by
sx * sw / sy in float32 and rounded once, half to even, as in onnxruntime:

    y = clamp(round(float32(sum) * (sx * sw / sy)) + zy)

Operators that compute no such sum (Add, pooling, Sigmoid ...) work on the real values in float64
and round once. onnxruntime rounds these in between, so it may be one code off at a tie.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxq.errors import InvalidModelError
from onnxq.operators.integer_operators import QOPERATORS, is_channels_last
from onnxq.operators.sliding_windows import Windows
from onnxq.quant.qparams import Array

Attributes = Mapping[str, Any]
Inputs = Sequence[Array | None]
Doubles = npt.NDArray[np.float64]
Place = tuple[Any, ...]


def centred(codes: Array, zero_point: Array | None, axis: int | None = None) -> Doubles:
    """Codes minus their zero point, one or one per index of `axis`, as exact doubles."""
    values = codes.astype(np.float64)
    if zero_point is None:
        return values
    return values - _along(zero_point.astype(np.float64), values.ndim, axis)


def _along(values: Array, rank: int, axis: int | None) -> Array:
    """One value, or one per index of `axis`, shaped to broadcast against a tensor of `rank`."""
    if values.size == 1:
        return values.reshape(())
    if axis is None or values.ndim != 1:
        return values
    dims = [1] * rank
    dims[axis] = -1
    return values.reshape(dims)


def requantize(sums: Array, factor: Array, zero_point: Array) -> Array:
    """Codes of integer sums: one float32 product, rounded half to even, clamped."""
    return _codes(sums.astype(np.float32) * factor.astype(np.float32), zero_point)


def quantize(real: Doubles, scale: Array, zero_point: Array) -> Array:
    """Codes of real values, rounded once, half to even."""
    return _codes(real / scale.astype(np.float64).reshape(()), zero_point)


def _codes(steps: Array, zero_point: Array) -> Array:
    ends = np.iinfo(zero_point.dtype)
    codes = np.rint(steps).astype(np.float64) + zero_point.astype(np.float64).reshape(())
    return np.clip(codes, ends.min, ends.max).astype(zero_point.dtype)


# -- sums of products ---------------------------------------------------------------------------


def conv_sums(x: Doubles, weight: Doubles, attributes: Attributes) -> Doubles:
    """The convolution of centred codes, channels second; padding adds zeros."""
    windows = Windows.of(attributes, x.shape[2:], weight.shape[2:])
    groups = int(attributes.get("group", 1))
    batch, channels, filters = x.shape[0], x.shape[1], weight.shape[0]
    parts = weight.reshape(groups, filters // groups, channels // groups, *weight.shape[2:])
    total = np.zeros((batch, groups, filters // groups, windows.count))
    padded = windows.pad(x)
    for offset in itertools.product(*map(range, windows.kernel)):
        place: Place = (..., *windows.slices(offset))
        piece = padded[place]
        piece = piece.reshape(batch, groups, channels // groups, windows.count)
        tap: Place = (..., *offset)
        total = total + parts[tap] @ piece
    return total.reshape(batch, filters, *windows.output)


def _qlinear_conv(inputs: Inputs, attributes: Attributes) -> Array:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = map(_given, inputs[:8])
    sums = conv_sums(centred(x, x_zero), centred(w, w_zero, 0), attributes)
    bias = _optional(inputs, 8)
    if bias is not None:
        sums += _along(bias.astype(np.float64), sums.ndim, 1)
    return requantize(sums, _along(_factor(x_scale, w_scale, y_scale), sums.ndim, 1), y_zero)


def _factor(x_scale: Array, w_scale: Array, y_scale: Array | None) -> Array:
    """sx * sw / sy in float32, in this order."""
    product = x_scale.reshape(()) * w_scale if x_scale.size == 1 else x_scale * w_scale
    return product if y_scale is None else product / y_scale.reshape(())


def _qlinear_matmul(inputs: Inputs, attributes: Attributes) -> Array:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = map(_given, inputs[:8])
    rows = _along(a_scale, max(a.ndim, 2), -2) if a.ndim > 1 else a_scale
    factor = _factor(rows, _along(b_scale, 1, -1), y_scale)
    return requantize(_product(a, a_zero, b, b_zero), factor, y_zero)


def _product(a: Array, a_zero: Array | None, b: Array, b_zero: Array | None) -> Doubles:
    """The matrix product of centred codes: zero points run along rows of a and columns of b."""
    return centred(a, a_zero, -2 if a.ndim > 1 else None) @ centred(b, b_zero, -1)


def _qgemm(inputs: Inputs, attributes: Attributes) -> Array:
    a, a_scale, a_zero, b, b_scale, b_zero = map(_given, inputs[:6])
    bias, y_scale, y_zero = (_optional(inputs, i) for i in (6, 7, 8))
    left = centred(a, a_zero)
    right = centred(b, b_zero, 0 if attributes.get("transB") else 1)
    sums = (left.T if attributes.get("transA") else left) @ (
        right.T if attributes.get("transB") else right
    )
    if bias is not None:
        sums = sums + bias.astype(np.float64)
    alpha = np.float32(attributes.get("alpha", 1.0))
    factor = _factor(alpha * a_scale, b_scale, y_scale)
    if y_scale is None:
        return sums.astype(np.float32) * factor
    return requantize(sums, factor, np.zeros((), a.dtype) if y_zero is None else y_zero)


def _matmul_integer(inputs: Inputs, attributes: Attributes) -> Array:
    a, b = map(_given, inputs[:2])
    sums = _product(a, _optional(inputs, 2), b, _optional(inputs, 3))
    return sums.astype(np.int64).astype(np.int32)


def _conv_integer(inputs: Inputs, attributes: Attributes) -> Array:
    x, w = map(_given, inputs[:2])
    x, w = centred(x, _optional(inputs, 2)), centred(w, _optional(inputs, 3), 0)
    return conv_sums(x, w, attributes).astype(np.int64).astype(np.int32)


# -- operators on real values -------------------------------------------------------------------


def _dequantized(inputs: Inputs, at: int) -> Doubles:
    """The real values of the operand at position `at`: exact in double."""
    codes, scale = _given(inputs[at]), _given(inputs[at + 1])
    return centred(codes, _optional(inputs, at + 2)) * scale.astype(np.float64).reshape(())


def _on_reals(function: Callable[..., Any]) -> Kernel:
    """An operator that applies `function` to the real values of its operands."""

    def kernel(inputs: Inputs, attributes: Attributes) -> Array:
        count = 2 if len(inputs) > 6 else 1
        real = function(attributes, *(_dequantized(inputs, 3 * i) for i in range(count)))
        return _quantized(real, inputs, 3 * count)

    return kernel


def _quantized(real: Doubles, inputs: Inputs, at: int) -> Array:
    """Codes of the result, whose scale is at position `at`."""
    zero_point = _optional(inputs, at + 1)
    if zero_point is None:  # 0 in the type of the operands
        operand = next(v for v in inputs if v is not None and v.dtype in (np.int8, np.uint8))
        zero_point = np.zeros((), operand.dtype)
    return quantize(real, _given(inputs[at]), zero_point)


def _qlinear_mul(inputs: Inputs, attributes: Attributes) -> Array:
    a, a_scale, b, b_scale, y_scale = (_given(inputs[i]) for i in (0, 1, 3, 4, 6))
    products = centred(a, inputs[2]) * centred(b, inputs[5])
    zero = _optional(inputs, 7)
    factor = _factor(a_scale, b_scale.reshape(()), y_scale)
    return requantize(products, factor, np.zeros((), a.dtype) if zero is None else zero)


def _qlinear_concat(inputs: Inputs, attributes: Attributes) -> Array:
    positions = QOPERATORS["QLinearConcat"].positions(len(inputs))
    joined = np.concatenate([_dequantized(inputs, at) for at in positions], attributes["axis"])
    return quantize(joined, _given(inputs[0]), _given(inputs[1]))


def _qlinear_where(inputs: Inputs, attributes: Attributes) -> Array:
    real = np.where(_given(inputs[0]), _dequantized(inputs, 1), _dequantized(inputs, 4))
    return _quantized(real, inputs, 7)


def _average_pool(attributes: Attributes, x: Doubles) -> Doubles:
    windows = Windows.of(attributes, x.shape[2:], tuple(attributes["kernel_shape"]))
    padded = windows.pad(x)
    inside = windows.counted(bool(attributes.get("count_include_pad", 0)))
    total, count = np.zeros((*x.shape[:2], *windows.output)), np.zeros(windows.output)
    for offset in itertools.product(*map(range, windows.kernel)):
        place: Place = (..., *windows.slices(offset))
        total = total + padded[place]
        count = count + inside[place]
    return np.asarray(total / count)


def _softmax(attributes: Attributes, x: Doubles) -> Doubles:
    axis = int(attributes.get("axis", -1))
    flat = x
    if int(attributes.get("opset", 13)) < 13:  # everything from the axis on is one row
        axis %= x.ndim
        flat = x.reshape(*x.shape[:axis], -1)
    shifted = np.exp(flat - flat.max(axis, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis, keepdims=True)).reshape(x.shape)


def _global_average_pool(attributes: Attributes, x: Doubles) -> Doubles:
    return _reduce_mean({"axes": range(2, x.ndim)}, x)


def _reduce_mean(attributes: Attributes, x: Doubles) -> Doubles:
    """The mean; of nothing it is NaN, without numpy's warning."""
    axes = tuple(attributes.get("axes", range(x.ndim)))
    count = math.prod(x.shape[axis] for axis in axes)
    total = x.sum(axes, keepdims=bool(attributes.get("keepdims", 1)))
    return np.asarray(total / np.float64(count))


def _leaky_relu(attributes: Attributes, x: Doubles) -> Doubles:
    return np.where(x >= 0, x, x * float(np.float32(attributes.get("alpha", 0.01))))


def _given(value: Array | None) -> Array:
    """A required input."""
    if value is None:
        raise InvalidModelError(
            "an integer operator lacks a required input",
            fix="export the model again: the file is not a valid ONNX model",
        )
    return value


def _optional(inputs: Inputs, at: int) -> Array | None:
    return inputs[at] if at < len(inputs) else None


Kernel = Callable[[Inputs, Attributes], Array]

KERNELS: Mapping[str, Kernel] = {
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QGemm": _qgemm,
    "MatMulInteger": _matmul_integer,
    "ConvInteger": _conv_integer,
    "QLinearAdd": _on_reals(lambda attributes, a, b: a + b),
    "QLinearMul": _qlinear_mul,
    "QLinearConcat": _qlinear_concat,
    "QLinearAveragePool": _on_reals(_average_pool),
    "QLinearGlobalAveragePool": _on_reals(_global_average_pool),
    "QLinearLeakyRelu": _on_reals(_leaky_relu),
    "QLinearSigmoid": _on_reals(lambda attributes, x: 1 / (1 + np.exp(-x))),
    "QLinearSoftmax": _on_reals(_softmax),
    "QLinearReduceMean": _on_reals(_reduce_mean),
    "QLinearWhere": _qlinear_where,
}
"""The kernel of each operator: inputs (None if left out) and attributes, channels second."""


def compute(op: str, domain: str, inputs: Inputs, attributes: Attributes) -> Array:
    """The output of one integer operator."""
    pools = op in QOPERATORS and QOPERATORS[op].pools
    last = pools and is_channels_last(domain, attributes)
    if last:
        inputs = [np.moveaxis(_given(inputs[0]), -1, 1), *inputs[1:]]
    with np.errstate(all="ignore"):  # as in a runtime, scales too large give infinities
        made = KERNELS[op](inputs, attributes)
    return np.moveaxis(made, 1, -1) if last else made
