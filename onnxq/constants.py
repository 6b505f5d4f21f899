"""Values that are known without running the model: constants, and what lies behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import AttributeProto, TensorProto

from onnxq.graph import domain_of
from onnxq.qparams import Array
from onnxq.tensors import SparseStoredValues, numpy_dtype, values_of


def array(tensor: gs.Tensor | None) -> Array | None:
    """The value of a constant tensor, read-only; None if it is only known at run time.

    Sees through Constant nodes and through Identity, Cast, Transpose, Reshape, Squeeze and
    Unsqueeze of constants, since exporters put those behind weights.
    """
    chain: list[gs.Node] = []  # not by recursion: chains may be longer than Python's stack
    while tensor is not None and tensor.name and not isinstance(tensor, gs.Constant):
        node = tensor.inputs[0] if tensor.inputs else None
        if node is None or domain_of(node):
            return None
        chain.append(node)
        if node.op == "Constant":
            break
        if node.op not in _TRANSPARENT:
            return None
        tensor = node.inputs[0]
    value: Array | None = None
    if isinstance(tensor, gs.Constant):
        value = None if getattr(tensor, "overridable", False) else values_of(tensor)
    elif chain and chain[-1].op == "Constant":
        value = constant_value(chain.pop())
    while chain and value is not None:
        node = chain.pop()
        value = _TRANSPARENT[node.op](node, value)
    if value is not None:
        value = value.view()
        value.setflags(write=False)
    return value


def is_constant(tensor: gs.Tensor | None) -> bool:
    """Whether `array` knows the value of `tensor`."""
    if isinstance(tensor, gs.Constant):  # without reading it
        return bool(tensor.name) and not getattr(tensor, "overridable", False)
    return array(tensor) is not None


def scalar(tensor: gs.Tensor | None) -> float | None:
    """The value of a constant with one element."""
    value = array(tensor)
    return float(value.reshape(())) if value is not None and value.size == 1 else None


def constant_value(node: gs.Node) -> Array | None:
    """What a Constant node makes, in the type ONNX gives it (value_float is float32)."""
    for key, value in node.attrs.items():
        if key == "value" and isinstance(value, gs.Constant):
            return values_of(value)
        if key in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if key in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if key in ("value_string", "value_strings"):
            return np.asarray(value, object)
        if key == "sparse_value" and isinstance(value, AttributeProto):
            return SparseStoredValues(value.sparse_tensor).load()
    return None


_INTEGERS = {
    *(TensorProto.INT2, TensorProto.INT4, TensorProto.INT8, TensorProto.INT16, TensorProto.INT32),
    *(TensorProto.UINT2, TensorProto.UINT4, TensorProto.UINT8, TensorProto.UINT16),
    *(TensorProto.INT64, TensorProto.UINT32, TensorProto.UINT64),
}


def _cast(node: gs.Node, value: Array) -> Array | None:
    """The cast value; None where runtimes disagree: text, and numbers the new type cannot hold."""
    if value.dtype.kind == "O" or node.attrs["to"] == TensorProto.STRING:
        return None
    dtype = numpy_dtype(node.attrs["to"])
    with np.errstate(over="ignore", invalid="ignore"):
        result = value.astype(dtype)
        if dtype == np.bool_ or np.can_cast(value.dtype, dtype):
            return result
        before, after = value.astype(np.float64), result.astype(np.float64)
    if node.attrs["to"] in _INTEGERS:
        held = np.trunc(before) == after
    else:
        held = np.isfinite(before) == np.isfinite(after)
    return result if held.all() else None


def _transpose(node: gs.Node, value: Array) -> Array | None:
    return np.transpose(value, node.attrs.get("perm"))


def _reshape(node: gs.Node, value: Array) -> Array | None:
    shape = array(node.inputs[1]) if len(node.inputs) > 1 else None
    if shape is None:
        return None
    keep_zero = node.attrs.get("allowzero", 0)
    dims = [
        value.shape[i] if d == 0 and not keep_zero else int(d) for i, d in enumerate(shape.tolist())
    ]
    return value.reshape(dims)


def _axes(node: gs.Node) -> tuple[bool, Any]:
    """Whether the axes are known, and what they are (attribute before opset 13, then input)."""
    if "axes" in node.attrs:
        return True, tuple(node.attrs["axes"])
    if len(node.inputs) < 2 or not node.inputs[1].name:
        return True, None
    axes = array(node.inputs[1])
    return axes is not None, None if axes is None else tuple(axes.reshape(-1).tolist())


def _squeeze(node: gs.Node, value: Array) -> Array | None:
    known, axes = _axes(node)
    return np.squeeze(value, axes) if known else None


def _unsqueeze(node: gs.Node, value: Array) -> Array | None:
    known, axes = _axes(node)
    return np.expand_dims(value, axes) if known and axes is not None else None


_TRANSPARENT: dict[str, Callable[[gs.Node, Array], Array | None]] = {
    "Identity": lambda node, value: value,
    "Cast": _cast,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
