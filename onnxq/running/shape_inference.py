"""Types and shapes that onnx can infer, without the bytes of weights.

Only small constants are passed with their values: these specify shapes (Reshape, Slice, Expand
...). External data is never read, and 2 GiB are no limit.

Shapes that a model computes (Shape, Gather, Concat ...) are followed too. For that, onnx creates an
unknown dimension for every entry of every vector that arithmetic reads, even if it is data. A long
vector could take all memory, so onnx infers from types alone if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper, shape_inference
from onnx.checker import ValidationError

from onnxq.errors import UnsupportedModelError
from onnxq.running.window_sizes import check_before_inference
from onnxq.storage.tensors import StoredValues, stored_size, to_tensor_proto

_SMALL = 1024
_LONG = 1 << 18
"""No vector of dimensions has this many entries; one sum of such vectors takes 40 MB."""
_GENERATED = "unk__"
"""Prefix of the names that onnx invents for unknown dimensions."""


def weightless(constant: gs.Constant) -> TensorProto:
    """The TensorProto of a constant, without values if it is large or in another file."""
    values = constant._values
    external = isinstance(values, StoredValues) and values.external is not None
    if not external and stored_size(constant) <= _SMALL:
        return to_tensor_proto(constant)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(values.dtype))
    return TensorProto(name=constant.name, dims=values.shape, data_type=kind)


def infer(proto: ModelProto) -> ModelProto:
    """`proto` with the value_info that onnx infers; UnsupportedModelError if it cannot."""
    check_before_inference(proto, "onnx cannot infer shapes")
    try:
        inferred = shape_inference.infer_shapes(proto)
        if any(_is_long(info) for info in _infos(inferred.graph)):
            return inferred
        return shape_inference.infer_shapes(proto, data_prop=True)
    except (shape_inference.InferenceError, ValidationError, RuntimeError, ValueError) as error:
        raise UnsupportedModelError(
            f"onnx cannot infer shapes: {' '.join(str(error).split())}",
            fix="shapes are optional; 'onnx.checker' reports what is wrong with the model",
        ) from error


def _infos(graph: GraphProto) -> Iterator[ValueInfoProto]:
    """The types of the tensors of a graph and of its bodies."""
    yield from (*graph.input, *graph.value_info, *graph.output)
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _infos(body)


def _is_long(info: ValueInfoProto) -> bool:
    dims = info.type.tensor_type.shape.dim
    return len(dims) == 1 and dims[0].dim_value > _LONG


def without_made_up_names(info: ValueInfoProto) -> ValueInfoProto:
    """`info` without invented names of dimensions: one may mean another size elsewhere."""
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
    """Size in memory of a tensor; None if its type or a dimension is unknown."""
    if dtype is None or shape is None or any(not isinstance(d, int) for d in shape):
        return None
    return int(math.prod(shape) * dtype.itemsize)
