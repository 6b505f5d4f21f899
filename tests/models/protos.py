"""Small protobufs for tests of the load and save boundary, and how they are checked."""

from __future__ import annotations

import itertools
from typing import Any

import onnx
import onnx_graphsurgeon as gs
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    parser,
)

from onnxq.graph import Model, from_proto
from tests.checks.same_model import assert_same

FLOAT = TensorProto.FLOAT


def info(name: str, shape: list[int | str] | None = None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [2] if shape is None else shape)


def make(
    nodes: list[NodeProto],
    inputs: list[onnx.ValueInfoProto] | None = None,
    outputs: list[onnx.ValueInfoProto] | None = None,
    *,
    opset: int = 17,
    ir_version: int = 8,
    **graph: Any,
) -> ModelProto:
    built = helper.make_graph(
        nodes,
        "g",
        [info("x")] if inputs is None else inputs,
        [info("y")] if outputs is None else outputs,
        **graph,
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(built, opset_imports=imports, ir_version=ir_version)


def text(body: str, opset: int = 17, ir_version: int = 8) -> ModelProto:
    return parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "com.x" : 1]>\n{body}'
    )


def kept(proto: ModelProto) -> Model:
    """The model of `proto`, after checking that it and its copy write back the same."""
    before = ModelProto()
    before.CopyFrom(proto)
    model = from_proto(proto)
    assert_same(before, model.to_proto())
    assert_same(before, model.clone().to_proto())
    assert_same(before, proto)
    return model


def node_of(model: Model, op: str) -> gs.Node:
    (node,) = model.nodes(op)
    return node


def add_props(message: Any, *pairs: tuple[str, str]) -> None:
    for key, value in pairs:
        message.metadata_props.add(key=key, value=value)


def documented() -> ModelProto:
    proto = text(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float s = {0.5}> "
        "{ t = Mul(x, w)  y = Neg(t) }"
    )
    proto.producer_name, proto.producer_version = "maker", "1.2"
    proto.domain, proto.model_version, proto.doc_string = "org.example", 7, "a model"
    add_props(proto, ("author", "me"), ("empty", ""))
    proto.graph.doc_string = "a graph"
    add_props(proto.graph, ("part", "main"))
    node = proto.graph.node[0]
    node.name, node.doc_string = "mul", "a node"
    add_props(node, ("scope", "layer1"))
    proto.graph.initializer[0].doc_string = "a weight"
    add_props(proto.graph.initializer[0], ("role", "weight"))
    proto.graph.input[0].doc_string = "an input"
    proto.graph.output[0].doc_string = "an output"
    proto.graph.value_info.append(info("t"))
    proto.graph.value_info[0].doc_string = "in between"
    add_props(proto.graph.value_info[0], ("k", "v"))
    note = proto.graph.quantization_annotation.add(tensor_name="t")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    return proto


def with_overloads() -> ModelProto:
    proto = text("g (float[2] x) => (float[2] y) { t = com.x.f (x)  y = com.x.f (t) }", 17, 10)
    for node, overload in zip(proto.graph.node, ("a", "b"), strict=True):
        node.overload = overload
        op = "Neg" if overload == "a" else "Abs"
        body = [helper.make_node(op, ["i"], ["o"])]
        function = helper.make_function(
            "com.x", "f", ["i"], ["o"], body, [helper.make_opsetid("", 17)], overload=overload
        )
        function.doc_string = f"overload {overload}"
        add_props(function, ("k", overload))
        proto.functions.append(function)
    return proto


def chain(length: int) -> list[NodeProto]:
    names = ["x", *(f"t{i}" for i in range(length - 1)), "y"]
    return [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]


def twins() -> ModelProto:
    """Two unnamed nodes that graphsurgeon takes for equal."""
    return text(
        "g (float[2] x) => (float[2] y, float[2] z) "
        "{ a = Relu(x)  b = Relu(x)  y = Neg(a)  z = Neg(b) }"
    )


def outer_uses() -> ModelProto:
    """If whose branches read an outer tensor, an outer initializer and an outer input."""
    return text(
        """g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            t = Relu(x)
            y = If (c) <
                then_branch = then () => (float[2] a) { a = Mul(t, w) },
                else_branch = other () => (float[2] b)
                    { k = Constant<value = float[2] {7, 8}>()  s = Add(x, k)  b = Add(s, w) }
            >
        }"""
    )


ONE = text("g (float[2] x) => (float[2] y) { t = Relu(x)  y = Neg(t) }")


def one() -> Model:
    proto = ModelProto()
    proto.CopyFrom(ONE)
    return from_proto(proto)
