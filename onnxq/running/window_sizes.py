"""Refuses windows (Conv, pooling) that are larger than the input they move over.

Such a window makes a negative dimension. Shape inference, in onnx as in onnxruntime, accepts it and
crashes the whole process at a Slice of it. A Conv of a tensor of rank 0 or 1 at run time crashes it
too; onnxruntime checks the rank only if the model states it.

So shapes are followed node by node here, as far as onnx infers them for a single node. The
libraries themselves refuse what it cannot infer.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, defs, helper
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError, infer_node_outputs

from onnxq.errors import UnsupportedModelError
from onnxq.operators import integer_operators

_WINDOWED = frozenset(
    (
        *("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"),
        *("AveragePool", "LpPool", "MaxPool", "QLinearAveragePool"),
    )
)
_SMALL = 64


def has_windows(model: ModelProto) -> bool:
    """Whether the model has an operator with a window."""
    return any(node.op_type in _WINDOWED for node in model.graph.node)


def check_before_inference(model: ModelProto, label: str) -> None:
    """Raise UnsupportedModelError if shape inference would crash the process."""
    if any(node.op_type == "Slice" for node in model.graph.node) and has_windows(model):
        check_windows(model, label)


def check_windows(
    model: ModelProto, label: str, given: Mapping[str, tuple[int, ...]] | None = None
) -> None:
    """Raise UnsupportedModelError at the first window larger than its input.

    `given` specifies shapes of model inputs.
    """
    versions = {o.domain: o.version for o in model.opset_import}
    types, values = _known(model.graph, given or {})
    for own in model.graph.node:
        node = _float_twin(own)
        if node is None or node.domain or any(n and n not in types for n in node.input):
            continue
        _check_rank(node, types, label)
        try:
            schema = defs.get_schema(node.op_type, versions.get("", 1), "")
            inputs = {name: types[name] for name in node.input if name}
            if node is not own:
                inputs = {name: _retyped(kind, TensorProto.FLOAT) for name, kind in inputs.items()}
            made = infer_node_outputs(schema, node, inputs, values)
        except (defs.SchemaError, InferenceError, ValidationError, RuntimeError, ValueError):
            continue
        for name, kind in made.items():
            if not kind.tensor_type.HasField("shape"):
                continue
            if any(d.dim_value < 0 for d in kind.tensor_type.shape.dim):
                raise _refusal(node, types, label)
            codes = types[node.input[0]].tensor_type.elem_type if node is not own else 0
            types[name] = _retyped(kind, codes) if codes else kind


def _known(
    graph: GraphProto, given: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, TypeProto], dict[str, TensorProto]]:
    """Types of inputs and constants, and the values of small integer constants."""
    types = {
        info.name: _open_dims(info.type)
        for info in graph.input
        if info.type.tensor_type.HasField("shape")
    }
    for info in graph.input:
        if info.name in given:
            kind = info.type.tensor_type.elem_type
            types[info.name] = helper.make_tensor_type_proto(kind, given[info.name])
    for tensor in graph.initializer:
        types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    values = {
        t.name: t
        for t in graph.initializer
        if t.data_type in (TensorProto.INT32, TensorProto.INT64)
        and len(t.dims) < 2
        and all(d <= _SMALL for d in t.dims)
        and not t.external_data
    }
    return types, values


def _open_dims(kind: TypeProto) -> TypeProto:
    """A type without negative dimensions, as some exporters write open ones."""
    made = _retyped(kind, kind.tensor_type.elem_type)
    for dim in made.tensor_type.shape.dim:
        if dim.dim_value < 0:
            dim.ClearField("dim_value")
    return made


def _retyped(kind: TypeProto, elements: int) -> TypeProto:
    made = TypeProto()
    made.CopyFrom(kind)
    made.tensor_type.elem_type = elements
    return made


def _float_twin(node: NodeProto) -> NodeProto | None:
    """A node of ONNX whose result has the same shape; None if there is none."""
    if node.domain and node.op_type in ("FakeQuantize", "QuantizeLinear", "DequantizeLinear"):
        return NodeProto(
            op_type="Identity", name=node.name, input=node.input[:1], output=node.output
        )
    found = integer_operators.find(node.domain, node.op_type)
    if found is None or not node.domain:
        return node
    attributes = {a.name: a for a in node.attribute}
    last = attributes.get("channels_last")
    if integer_operators.is_channels_last(node.domain, {"channels_last": last.i} if last else {}):
        return None
    at = (*found.plain, *found.positions(len(node.input)))
    return NodeProto(
        op_type=found.twin,
        name=node.name,
        input=[node.input[i] for i in at if i < len(node.input)],
        output=node.output,
        attribute=[a for n, a in attributes.items() if n not in (*found.drops, "channels_last")],
    )


def _check_rank(node: NodeProto, types: Mapping[str, TypeProto], label: str) -> None:
    if node.op_type not in _WINDOWED or not node.input:
        return
    shape = types[node.input[0]].tensor_type.shape if node.input[0] else None
    if shape is not None and len(shape.dim) < 2:
        raise UnsupportedModelError(
            f"{label}: node '{_name(node)}' ({node.op_type}) reads '{node.input[0]}' of rank "
            f"{len(shape.dim)}, and onnxruntime crashes on it",
            fix="state the shapes of the model's inputs, or give samples of the right shape",
        )


def _refusal(node: NodeProto, types: Mapping[str, TypeProto], label: str) -> UnsupportedModelError:
    shape = [d.dim_value or d.dim_param or "?" for d in types[node.input[0]].tensor_type.shape.dim]
    return UnsupportedModelError(
        f"{label}: the window of node '{_name(node)}' ({node.op_type}) is larger than its input "
        f"'{node.input[0]}' {shape}",
        fix="export the network for larger inputs, or correct the kernel size",
    )


def _name(node: NodeProto) -> str:
    return node.name or ", ".join(node.output)
