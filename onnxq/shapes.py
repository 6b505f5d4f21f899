"""Types and shapes that onnx can infer, without the bytes of weights.

Only small constants are handed over with their values: those are the ones that give shapes
(Reshape, Slice, Expand ...). So external data is never read, and 2 GiB are no limit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, shape_inference
from onnx.checker import ValidationError

from onnxq.errors import UnsupportedModelError
from onnxq.tensors import StoredValues, stored_size, to_tensor_proto
from onnxq.window_sizes import check_before_inference

_SMALL = 1024
_GENERATED = "unk__"
"""How onnx begins the names it makes up for dimensions it does not know."""


def weightless(constant: gs.Constant) -> TensorProto:
    """The TensorProto of a constant, without values where it is large or in another file."""
    values = constant._values
    external = isinstance(values, StoredValues) and values.external is not None
    if not external and stored_size(constant) <= _SMALL:
        return to_tensor_proto(constant)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(values.dtype))
    return TensorProto(name=constant.name, dims=values.shape, data_type=kind)


def infer(proto: ModelProto) -> ModelProto:
    """`proto` with the value_info that onnx infers; UnsupportedModelError where it cannot."""
    check_before_inference(proto, "onnx cannot infer shapes")
    try:
        return shape_inference.infer_shapes(proto, data_prop=True)
    except (shape_inference.InferenceError, ValidationError, RuntimeError, ValueError) as error:
        raise UnsupportedModelError(
            f"onnx cannot infer shapes: {' '.join(str(error).split())}",
            fix="shapes are not needed to go on; 'onnx.checker' says what is wrong with the model",
        ) from error


def without_made_up_names(info: ValueInfoProto) -> ValueInfoProto:
    """`info` with unknown dimensions left open: a made-up name may mean another size elsewhere."""
    dims = info.type.tensor_type.shape.dim
    if not any(d.dim_param.startswith(_GENERATED) for d in dims):
        return info
    open_ = ValueInfoProto()
    open_.CopyFrom(info)
    for dim in open_.type.tensor_type.shape.dim:
        if dim.dim_param.startswith(_GENERATED):
            dim.ClearField("dim_param")
    return open_


def static_bytes(dtype: np.dtype[Any] | None, shape: list[Any] | None) -> int | None:
    """Size in memory of a tensor; None where the type or a dimension is not known."""
    if dtype is None or shape is None or any(not isinstance(d, int) for d in shape):
        return None
    return int(math.prod(shape) * dtype.itemsize)
