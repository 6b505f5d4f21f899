"""A float16 model that computes in float32.

onnxruntime's CPU kernels have no integer forms for float16, and its optimised sessions compute
some float16 Q/DQ graphs wrongly. Float16 numbers are float32 numbers: constants keep their values,
inputs and outputs their type, and only roundings in between go away.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxq.edit import constant, new_node, replace, set_input, users, variable
from onnxq.graph import Model
from onnxq.graph.constants import array

_HALF, _SINGLE = np.dtype(np.float16), np.dtype(np.float32)
_TYPED_BY = ("to", "dtype")
"""Attributes that name the type of a result."""


def in_single_precision(model: Model) -> bool:
    """Let `model` (which is changed) compute in float32; False if it has no float16."""
    inputs = [t for t in model.graph.inputs if t.dtype == _HALF]
    outputs = [t for t in model.graph.outputs if t.dtype == _HALF]
    changed = _retyped(model)
    for tensor in inputs:
        tensor.dtype = _HALF
        wide = variable(model, f"{tensor.name}.float32", like=tensor)
        wide.dtype = _SINGLE
        readers = users(tensor)
        _cast(model, tensor, wide, onnx.TensorProto.FLOAT)
        for node, index in readers:
            set_input(node, index, wide)
    for tensor in outputs:
        _cast_output(model, tensor)
    model.refresh()
    return bool(changed or inputs or outputs)


def without_idle_casts(model: Model) -> None:
    """Remove Casts of `model` from float32 to float32, which wider types leave behind."""
    for node in model.nodes("Cast"):
        source = node.inputs[0]
        if node.attrs.get("to") == onnx.TensorProto.FLOAT and source.dtype == _SINGLE:
            replace(node, by=source, model=model)


def _retyped(model: Model) -> bool:
    """Give every float16 constant, tensor and attribute the wider type."""
    found = False
    for node in model.nodes():
        for name in _TYPED_BY:
            if node.attrs.get(name) in (onnx.TensorProto.FLOAT16, _HALF, np.float16):
                node.attrs[name] = onnx.TensorProto.FLOAT
                found = True
        for key, value in node.attrs.items():
            # Bodies have any attribute one asks for, and complain that it is not an operator.
            if isinstance(value, gs.Constant) and value.values.dtype == _HALF:
                node.attrs[key] = gs.Constant(value.name, value.values.astype(_SINGLE))
                found = True
        for index, tensor in enumerate(node.inputs):
            if tensor.dtype == _HALF and (half := array(tensor)) is not None:
                set_input(node, index, constant(model, tensor.name, half.astype(_SINGLE)))
                found = True
    tensors = [t for g in model.graphs() for t in (*g.inputs, *g.outputs)]
    for tensor in (*tensors, *(t for n in model.nodes() for t in (*n.inputs, *n.outputs))):
        if tensor.dtype == _HALF:
            tensor.dtype, found = _SINGLE, True
    return found


def _cast(model: Model, source: gs.Tensor, result: gs.Tensor, to: int) -> None:
    name = f"{result.name}.cast"
    new_node(model, "Cast", [source], [result], name=name, attrs={"to": int(to)})


def _cast_output(model: Model, tensor: gs.Tensor) -> None:
    """Let an output of the network have its name and its float16, and be computed in float32."""
    name = tensor.name
    tensor.name = model.fresh_name(f"{name}.float32")
    narrow = variable(model, name, like=tensor)
    narrow.name, narrow.dtype = name, _HALF
    for index, output in enumerate(model.graph.outputs):
        if output is tensor:
            model.graph.outputs[index] = narrow
    _cast(model, tensor, narrow, onnx.TensorProto.FLOAT16)


__all__ = ["in_single_precision"]
