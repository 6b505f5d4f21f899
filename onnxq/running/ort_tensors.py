"""Conversion of arrays to and from onnxruntime.

onnxruntime's Python interface supports the types of numpy. bfloat16, float8 and the types below 8
bits are passed as raw bytes instead; below 8 bits the bytes are packed, as in a TensorProto.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from onnx import TensorProto, numpy_helper

from onnxq.quant.qparams import Array
from onnxq.storage.tensors import numpy_dtype


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a session.

    A dimension is a number, the name of a symbol, or None if the model does not specify it. The
    shape of a tensor of unknown rank is (), as that of a scalar: onnxruntime does not distinguish
    them. `dtype` is None if the value is not a tensor.
    """

    name: str
    shape: tuple[int | str | None, ...]
    type: str
    dtype: np.dtype[Any] | None

    def __str__(self) -> str:
        dims = ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.dtype or self.type}[{dims}]"


def spec_of(argument: Any) -> TensorSpec:
    """The specification of onnxruntime's `NodeArg`."""
    kind = str(argument.type)
    dtype = numpy_dtype(_onnx_type(kind)) if kind.startswith("tensor(") else None
    return TensorSpec(argument.name, tuple(argument.shape), kind, dtype)


def _onnx_type(kind: str) -> int:
    """The element type of a name such as "tensor(float8e4m3fn)"."""
    return TensorProto.DataType.Value(kind[len("tensor(") : -1].upper())


def is_native(spec: TensorSpec) -> bool:
    """Whether numpy itself has this type."""
    return spec.dtype is None or spec.dtype.type.__module__ != "ml_dtypes"


def to_ort(spec: TensorSpec, array: Array) -> Any:
    """The `OrtValue` of an array."""
    from onnxruntime import OrtValue

    array = np.asarray(array, order="C")
    if is_native(spec):
        return OrtValue.ortvalue_from_numpy(array)
    packed = numpy_helper.from_array(array).raw_data
    # onnxruntime takes the shape from the buffer, which has fewer packed bytes than elements.
    raw = np.zeros(array.size * array.itemsize, np.uint8)
    raw[: len(packed)] = np.frombuffer(packed, np.uint8)
    buffer = raw.view(np.dtype(f"u{array.itemsize}")).reshape(array.shape)
    return OrtValue.ortvalue_from_numpy_with_onnx_type(buffer, _onnx_type(spec.type))


def from_ort(spec: TensorSpec, value: Any) -> Array:
    """The array of an `OrtValue`; a copy."""
    if is_native(spec):
        return cast(Array, value.numpy())
    size = value.tensor_size_in_bytes()
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    proto = TensorProto(data_type=_onnx_type(spec.type), dims=value.shape(), raw_data=raw)
    return numpy_helper.to_array(proto)


def is_size(dim: int | str | None) -> bool:
    """Whether a dimension of a model is a number, not open."""
    return isinstance(dim, int) and dim >= 0
