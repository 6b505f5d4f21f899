"""f(T x) = T f'(x), for every operator that the module moves."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxq.analysis.channels_last import _MOVABLE, _SINGLE, ignores_layout, moved
from onnxq.running.sessions import reference
from tests.models.build import parse, quantize, run

PERM = (0, 2, 3, 1)
SHAPE = (2, 3, 4, 5)
X = np.random.default_rng(0).uniform(0.1, 2, size=SHAPE).astype(np.float32)

CASES = {
    **{op: (f"y = {op}(t)", "") for op in sorted(_SINGLE - {"Cast", "Clip", "Gelu"})},
    "Gelu": ("y = Gelu(t)", ""),
    "Clip": ("y = Clip(t, low)", "float low = {0.5}"),
    "Cast": ("y = Cast<to=1>(t)", ""),
    "Add": ("y = Add(t, b)", "float[3] b = {1, 2, 3}"),
    "Sub": ("y = Sub(b, t)", "float[4,1,1] b = {1, 2, 3, 4}"),
    "Mul": ("y = Mul(t, t)", ""),
    "Div": ("y = Div(t, b)", "float[1] b = {3}"),
    "Pow": ("y = Pow(t, b)", "float b = {2}"),
    "PRelu": ("n = Neg(t) y = PRelu(t, b)", "float[5,1] b = {1, 2, 3, 4, 5}"),
    "Min": ("y = Min(b, t)", "float[5,1] b = {1, 2, 3, 0, 1}"),
    "Max": ("y = Max(t, b, t)", "float[3] b = {1, 2, 3}"),
    "Softmax": ("y = Softmax(t)", ""),
    "LogSoftmax": ("y = LogSoftmax<axis=1>(t)", ""),
    "Concat": ("y = Concat<axis=-1>(t, t)", ""),
    "Split": ("y, z = Split<axis=3, num_outputs=2>(t)", ""),
    "Pad": ("y = Pad(t, p)", "int64[8] p = {0, 1, 0, 2, 0, 0, 3, 0}"),
    "ReduceMean": ("y = ReduceMean(t, a)", "int64[2] a = {1, -1}"),
    "ReduceSum": ("y = ReduceSum(t, a)", "int64[1] a = {3}"),
    "ReduceMax": ("y = ReduceMax(t)", ""),
    "ReduceMin": ("y = ReduceMin(t, a)", "int64[1] a = {2}"),
    "ReduceL2": ("y = ReduceL2(t, a)", "int64[1] a = {2}"),
    "QuantizeLinear": (
        "y = QuantizeLinear<axis=3>(t, s, z)",
        "float[3] s = {1,2,3}, int8[3] z = {0,1,2}",
    ),
    "DequantizeLinear": (
        "q = Cast<to=3>(t) y = DequantizeLinear<axis=1>(q, s)",
        "float[4] s = {1, 2, 3, 4}",
    ),
}


@pytest.mark.parametrize("op", sorted(CASES))
def test_the_moved_operator_commutes_with_the_transpose(op: str) -> None:
    """The operator on transposed values, against the moved one, transposed afterwards."""
    body, constants = CASES[op]
    held = f"<{constants}>" if constants else ""
    model = parse(f"g (float[2,4,5,3] t) => (y) {held} {{ {body} }}", opset=20, ir_version=9)
    node = next(n for n in model.nodes() if n.op == op)
    assert ignores_layout(node)
    change = moved(node, PERM, 20)
    assert change is not None
    inputs = {}
    proto = onnx.NodeProto(op_type=op, output=[f"o{i}" for i in range(len(node.outputs))])
    back = tuple(np.argsort(PERM))
    for index, tensor in enumerate(node.inputs):
        value = change.constants.get(index)
        if value is None:
            value = getattr(tensor, "values", None) if index not in change.data else None
        if index in change.data:
            given = np.transpose(X, PERM) if op != "DequantizeLinear" else _codes()
            value = np.transpose(given, back)
        inputs[f"i{index}"] = np.asarray(value)
        proto.input.append(f"i{index}")
    for key, value in {**node.attrs, **change.attrs}.items():
        proto.attribute.append(onnx.helper.make_attribute(key, value))
    alone = _alone(proto, inputs)
    want = _alone_original(node, op)
    for got, expected in zip(alone, want, strict=True):
        np.testing.assert_allclose(
            np.transpose(got, PERM).astype(np.float64), expected.astype(np.float64), rtol=1e-6
        )


def _codes() -> np.ndarray:
    return np.transpose(X * 10, PERM).astype(np.int8)


def _alone_original(node, op: str) -> list[np.ndarray]:  # type: ignore[no-untyped-def]
    proto = onnx.NodeProto(op_type=op, output=[f"o{i}" for i in range(len(node.outputs))])
    inputs = {}
    for index, tensor in enumerate(node.inputs):
        value = getattr(tensor, "values", None)
        if value is None:
            value = _codes() if op == "DequantizeLinear" else np.transpose(X, PERM)
        inputs[f"i{index}"] = np.asarray(value)
        proto.input.append(f"i{index}")
    for key, value in node.attrs.items():
        proto.attribute.append(onnx.helper.make_attribute(key, value))
    return _alone(proto, inputs)


def _alone(proto: onnx.NodeProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run one node; all inputs but the first are initializers."""
    first, *others = inputs
    graph = onnx.helper.make_graph(
        [proto],
        "g",
        [
            onnx.helper.make_tensor_value_info(
                first,
                onnx.helper.np_dtype_to_tensor_dtype(inputs[first].dtype),
                inputs[first].shape,
            )
        ],
        [onnx.ValueInfoProto(name=name) for name in proto.output],
        [
            onnx.numpy_helper.from_array(np.ascontiguousarray(inputs[n]), n)
            if inputs[n].ndim
            else onnx.numpy_helper.from_array(inputs[n], n)
            for n in others
        ],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9
    )
    return list(reference(model).run({first: inputs[first]}).values())


def test_every_rule_is_tried() -> None:
    assert set(CASES) >= _MOVABLE


def test_quantizers_name_their_axis() -> None:
    model = parse("g (float[2,4,5,3] t) => (float[2,4,5,3] y) { y = Neg(t) }")
    quantize(model, "t", scale=np.float32([1, 2, 3]), axis=3)
    node = next(n for n in model.nodes() if n.op == "FakeQuantize")
    change = moved(node, PERM, 17)
    assert change is not None
    assert change.attrs == {"axis": 1}
    assert run(model, np.transpose(X, PERM))[0].shape == (2, 4, 5, 3)


@pytest.mark.parametrize(
    ("body", "opset"),
    [
        ("y = Flatten(t)", 17),
        ("y = Softmax(t)", 11),
        ("y = ReduceMean<axes=[1], keepdims=0>(t)", 17),
        ("y = MaxPool<kernel_shape=[1,1]>(t)", 17),
    ],
)
def test_others_are_not_moved(body: str, opset: int) -> None:
    model = parse(f"g (float[2,4,5,3] t) => (y) {{ {body} }}", opset=opset)
    assert moved(model.nodes()[0], PERM, opset) is None
