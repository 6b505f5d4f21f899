"""Operators whose results on constants are known without a runtime.

Two kinds. Those that move or convert elements (Reshape, Cast ...) are exact whatever their size,
and so cheap that weights after them count as constants. Arithmetic (Mul, Div, Sqrt ...) is rounded
once per element by IEEE 754, in numpy as in every runtime, so it gives the same bits; it is for
scales, zero points and bounds, and declines if a result is as large as a weight: `fold-constants`
computes those. Integer results that wrap around are declined as well.

Each function takes the node and the values of its inputs (None if one is left out). It returns the
result, or None if runtimes disagree or the node cannot be valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto

from onnxq.arrays.pieces import assembled, cut, is_large
from onnxq.quant.qparams import Array
from onnxq.storage.tensors import numpy_dtype, values_of

Values = Sequence[Array | None]
Operator = Callable[[gs.Node, Values], Array | None]

ARITHMETIC_LIMIT = 1 << 16
"""Most elements a computed constant may have."""

_INTEGERS = {
    *(TensorProto.INT2, TensorProto.INT4, TensorProto.INT8, TensorProto.INT16, TensorProto.INT32),
    *(TensorProto.UINT2, TensorProto.UINT4, TensorProto.UINT8, TensorProto.UINT16),
    *(TensorProto.INT64, TensorProto.UINT32, TensorProto.UINT64),
}


def evaluate(node: gs.Node, values: Values) -> Array | None:
    """The result of `node` for `values`; None if it is not known here."""
    try:
        return OPERATORS[node.op](node, values)
    except (IndexError, KeyError, TypeError, ValueError):
        return None  # invalid axes, shapes, inputs or attributes: a runtime will say so


# -- moving and converting ------------------------------------------------------------------


def _data(values: Values, index: int = 0) -> Array:
    value = values[index]
    if value is None:
        raise ValueError(f"input {index} is left out")
    return value


def _identity(node: gs.Node, values: Values) -> Array | None:
    return _data(values)


def _cast(node: gs.Node, values: Values) -> Array | None:
    return _converted(_data(values), int(node.attrs["to"]))


def _cast_like(node: gs.Node, values: Values) -> Array | None:
    like = _data(values, 1).dtype
    kinds = (kind for kind in (*_INTEGERS, *_FLOATS, TensorProto.BOOL) if numpy_dtype(kind) == like)
    kind = next(kinds, None)
    return None if kind is None else _converted(_data(values), kind)


_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


def _converted(value: Array, to: int) -> Array | None:
    """The cast value; None if runtimes disagree: text, and numbers outside the new type."""
    if value.dtype.kind == "O" or to == TensorProto.STRING:
        return None
    dtype = numpy_dtype(to)
    sure = dtype == np.bool_ or np.can_cast(value.dtype, dtype)
    if not sure and not all(_is_held(part, dtype, to in _INTEGERS) for part in cut(value)):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        if not is_large(value.shape):
            return value.astype(dtype)
        return assembled(value.shape, dtype, (part.astype(dtype) for part in cut(value)))


def _is_held(value: Array, dtype: np.dtype[Any], whole: bool) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        before, after = value.astype(np.float64), value.astype(dtype).astype(np.float64)
    held = np.trunc(before) == after if whole else np.isfinite(before) == np.isfinite(after)
    return bool(held.all())


def _transpose(node: gs.Node, values: Values) -> Array | None:
    return np.transpose(_data(values), node.attrs.get("perm"))


def _reshape(node: gs.Node, values: Values) -> Array | None:
    value, shape = _data(values), _data(values, 1)
    keep_zero = node.attrs.get("allowzero", 0)
    dims = [
        value.shape[i] if d == 0 and not keep_zero else int(d) for i, d in enumerate(shape.tolist())
    ]
    return value.reshape(dims)


def _flatten(node: gs.Node, values: Values) -> Array | None:
    value = _data(values)
    axis = int(node.attrs.get("axis", 1))
    axis += value.ndim if axis < 0 else 0
    return value.reshape(math.prod(value.shape[:axis]), -1)


def _axes(node: gs.Node, values: Values) -> tuple[int, ...] | None:
    """The axes: an attribute before opset 13, then an input."""
    if "axes" in node.attrs:
        return tuple(node.attrs["axes"])
    given = values[1] if len(values) > 1 else None
    return None if given is None else tuple(given.reshape(-1).tolist())


def _squeeze(node: gs.Node, values: Values) -> Array | None:
    return np.squeeze(_data(values), _axes(node, values))


def _unsqueeze(node: gs.Node, values: Values) -> Array | None:
    axes = _axes(node, values)
    return None if axes is None else np.expand_dims(_data(values), axes)


# -- small constants ------------------------------------------------------------------------


def _small(shape: Sequence[int]) -> bool:
    return math.prod(shape) <= ARITHMETIC_LIMIT


def _constant_of_shape(node: gs.Node, values: Values) -> Array | None:
    dims = tuple(_data(values).reshape(-1).tolist())
    given = node.attrs.get("value")
    value = values_of(given) if isinstance(given, gs.Constant) else np.zeros(1, np.float32)
    return np.full(dims, value.reshape(-1)[0], value.dtype) if _small(dims) else None


def _expand(node: gs.Node, values: Values) -> Array | None:
    value, shape = _data(values), _data(values, 1)
    dims = np.broadcast_shapes(value.shape, tuple(shape.tolist()))
    return np.broadcast_to(value, dims) if _small(dims) else None


def _concat(node: gs.Node, values: Values) -> Array | None:
    parts = [v for v in values if v is not None]
    if len(parts) < len(values) or sum(p.size for p in parts) > ARITHMETIC_LIMIT:
        return None
    return np.concatenate(parts, int(node.attrs["axis"]))


def _gather(node: gs.Node, values: Values) -> Array | None:
    value, at = _data(values), _data(values, 1)
    if not _small((at.size, value.size // max(1, value.shape[0]))):
        return None
    return np.asarray(np.take(value, at, int(node.attrs.get("axis", 0))))


def _shape(node: gs.Node, values: Values) -> Array | None:
    dims = np.asarray(_data(values).shape, np.int64)
    return dims[slice(node.attrs.get("start", 0), node.attrs.get("end"))]


def _arithmetic(compute: Callable[..., Any], *, integers: bool = True) -> Operator:
    """An elementwise operator of inputs of one type; with `integers` also of integer types."""

    def run(node: gs.Node, values: Values) -> Array | None:
        operands = [v for v in values if v is not None]
        dtype = operands[0].dtype
        if len(operands) < len(values) or any(v.dtype != dtype for v in operands):
            return None
        if not _small(np.broadcast_shapes(*(v.shape for v in operands))):
            return None
        if dtype in _COMPUTED:
            with np.errstate(all="ignore"):
                return np.asarray(compute(*operands)).astype(dtype, copy=False)
        if not integers or dtype.kind not in "iu":
            return None
        # Python's integers do not wrap around, so results beyond the type are found.
        exact = np.asarray(compute(*(v.astype(object) for v in operands)), object)
        ends = np.iinfo(dtype)
        if any(not ends.min <= value <= ends.max for value in exact.reshape(-1)):
            return None
        return exact.astype(dtype)

    return run


_COMPUTED = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16))


def _reciprocal(value: Array) -> Array:
    return np.asarray(value.dtype.type(1) / value)


MOVING: dict[str, Operator] = {
    "Identity": _identity,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
"""Operators that move or convert elements, of the default domain."""

OPERATORS: dict[str, Operator] = {
    **MOVING,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Concat": _concat,
    "Gather": _gather,
    "Shape": _shape,
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
    "Div": _arithmetic(np.divide, integers=False),
    "Neg": _arithmetic(np.negative),
    "Abs": _arithmetic(np.abs),
    "Sqrt": _arithmetic(np.sqrt, integers=False),
    "Reciprocal": _arithmetic(_reciprocal, integers=False),
}
"""All operators that `evaluate` knows: those, and some that compute small constants."""


__all__ = ["ARITHMETIC_LIMIT", "MOVING", "OPERATORS", "Operator", "evaluate"]
