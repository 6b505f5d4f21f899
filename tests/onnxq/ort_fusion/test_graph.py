"""The graph that onnxruntime wrote: who makes and who reads what."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from onnxq.graph import from_proto
from onnxq.ort_fusion.graph import BODY, OrtGraph, graphs_of
from onnxq.ort_fusion.probe import probe
from onnxq.running.optimizer import optimize
from tests.models.zoo import ZOO
from tests.models.zoo_build import Build


def graphs(b: Build, *outputs: str) -> list[OrtGraph]:
    asked = probe(from_proto(b.model(*outputs)))
    return graphs_of(optimize(asked.proto, "none"), asked)


def test_edges_makers_and_where_nodes_come_from() -> None:
    b = Build(17)
    x = b.op("Relu", b.input("x", [2, 3]), out="a")
    (g,) = graphs(b, b.op("Neg", b.op("Abs", x, out="b"), out="y"))
    assert [(step.op, step.source) for step in g] == [("Relu", 0), ("Abs", 1), ("Neg", 2)]
    assert g.only_reader("a") is g.maker["b"]
    assert g.made_by("a", "Relu") is g.maker["a"]
    assert g.made_by("a", "Neg") is None
    assert g.only_reader("y") is None


def test_constants_shapes_and_types() -> None:
    b = Build(17)
    y = b.op("Add", b.input("x", [2, 3]), b.init([[1.5]], "c"))
    (g,) = graphs(b, b.op("Add", y, b.init([2.0], "d")))
    assert g.is_constant("c")
    assert not g.is_constant("x")
    assert not g.is_scalar("c")  # rank 2
    assert g.is_scalar("d")
    assert g.shape("x") == [2, 3]
    assert str(g.dtype("x")) == "float32"
    value = g.value("d")
    assert value is not None
    assert value.tolist() == [2.0]


def test_casts_that_onnxruntime_puts_in_are_looked_through() -> None:
    b = Build(19)
    scale, zero = b.init(np.float16(0.5)), b.init(np.uint8(3))
    codes = b.op("QuantizeLinear", b.input("x", [2, 3], TensorProto.FLOAT16), scale, zero)
    x = b.op("DequantizeLinear", codes, scale, zero, out="real")
    asked = probe(from_proto(b.model(b.op("Sigmoid", x, out="y"))))
    basic = optimize(asked.proto, "basic")
    assert any(node.op_type == "Cast" for node in basic.graph.node)
    (g,) = graphs_of(basic, asked)
    (sigmoid,) = (step for step in g if step.op == "Sigmoid")
    assert g.made_by(sigmoid.inputs[0], "DequantizeLinear") is not None
    assert sigmoid.output in g.outputs


def test_what_bodies_read_is_an_edge() -> None:
    asked = probe(from_proto(ZOO["qdq_in_if"]()))
    main, *inner = graphs_of(optimize(asked.proto, "none"), asked)
    assert inner
    read = {name for body in inner for name in body.read_outside() if name in main.maker}
    assert read
    assert all(BODY in [index for _, index in main.edges(name)] for name in read)
