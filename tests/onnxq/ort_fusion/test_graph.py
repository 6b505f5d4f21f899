"""The graph that onnxruntime wrote: producers and consumers of tensors."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from onnxq.graph import from_proto
from onnxq.ort_fusion.graph import OrtGraph, graphs_of
from onnxq.ort_fusion.probe import probe
from onnxq.running.optimizer import optimize
from tests.models.zoo import ZOO
from tests.models.zoo_build import Build


def graphs(b: Build, *outputs: str) -> list[OrtGraph]:
    asked = probe(from_proto(b.model(*outputs)))
    return graphs_of(optimize(asked.proto, "none"), asked)


def test_producers_consumers_and_the_origin_of_nodes() -> None:
    b = Build(17)
    x = b.op("Relu", b.input("x", [2, 3]), out="a")
    (g,) = graphs(b, b.op("Neg", b.op("Abs", x, out="b"), out="y"))
    assert [(o.op, o.source) for o in g.operations] == [("Relu", 0), ("Abs", 1), ("Neg", 2)]
    assert g.only_consumer("a") is g.producer["b"]
    assert g.made_by("a", "Relu") is g.producer["a"]
    assert g.made_by("a", "Neg") is None
    assert g.only_consumer("y") is None


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


def test_casts_that_onnxruntime_inserts_are_skipped() -> None:
    b = Build(19)
    scale, zero = b.init(np.float16(0.5)), b.init(np.uint8(3))
    codes = b.op("QuantizeLinear", b.input("x", [2, 3], TensorProto.FLOAT16), scale, zero)
    x = b.op("DequantizeLinear", codes, scale, zero, out="real")
    asked = probe(from_proto(b.model(b.op("Sigmoid", x, out="y"))))
    basic = optimize(asked.proto, "basic")
    assert any(node.op_type == "Cast" for node in basic.graph.node)
    (g,) = graphs_of(basic, asked)
    (sigmoid,) = (o for o in g.operations if o.op == "Sigmoid")
    assert sigmoid.cast
    assert g.made_by(sigmoid.inputs[0], "DequantizeLinear") is not None
    assert sigmoid.output in g.outputs


def test_the_node_of_a_body_consumes_what_the_body_reads() -> None:
    asked = probe(from_proto(ZOO["qdq_in_if"]()))
    main, *inner = graphs_of(optimize(asked.proto, "none"), asked)
    assert inner
    read = {name for body in inner for name in body.read_outside() if name in main.producer}
    assert read
    assert all("If" in [use.op for use in main.consumers(name)] for name in read)
