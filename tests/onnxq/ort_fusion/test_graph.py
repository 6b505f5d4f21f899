"""The light graph: edges stay right while nodes come and go."""

from __future__ import annotations

from onnxq.graph import from_proto
from onnxq.ort_fusion.graph import BODY, OrtGraph, Step, graphs_of
from tests.models.zoo import ZOO
from tests.models.zoo_build import Build


def graph(b: Build, *outputs: str) -> OrtGraph:
    return graphs_of(from_proto(b.model(*outputs)))[0]


def chain() -> OrtGraph:
    b = Build(17)
    x = b.op("Relu", b.input("x", [2, 3]), out="a")
    return graph(b, b.op("Neg", b.op("Identity", x, out="b"), out="y"))


def test_edges_and_makers() -> None:
    g = chain()
    assert [step.op for step in g] == ["Relu", "Identity", "Neg"]
    identity = g.maker["b"]
    assert g.only_reader("a") is identity
    assert g.made_by("a", "Relu") is g.maker["a"]
    assert g.made_by("a", "Neg") is None
    assert g.only_reader("y") is None


def test_a_node_is_bypassed() -> None:
    g = chain()
    assert g.bypass(g.maker["b"])
    assert [step.op for step in g] == ["Relu", "Neg"]
    assert g.only_reader("a") is g.maker["y"]
    assert "b" not in g.maker


def test_a_bypassed_output_keeps_its_name() -> None:
    b = Build(17)
    g = graph(b, b.op("Identity", b.op("Relu", b.input("x", [2, 3])), out="y"))
    assert g.bypass(g.maker["y"])
    assert g.maker["y"].op == "Relu"


def test_an_input_that_is_an_output_stays() -> None:
    b = Build(17)
    g = graph(b, b.op("Identity", b.input("x", [2, 3]), out="y"))
    assert not g.bypass(g.maker["y"])


def test_inputs_and_outputs_change() -> None:
    g = chain()
    made = g.add(Step("Abs", ["x"], [g.fresh()]))
    neg = g.maker["y"]
    g.set_input(neg, 0, made.output)
    assert g.edges("b") == []
    assert g.edges(made.output) == [(neg, 0)]
    g.set_output(made, "other")
    assert g.maker["other"] is made
    g.remove(neg)
    assert "y" not in g.maker
    assert all(step is not neg for step in g)


def test_constants_shapes_and_types() -> None:
    b = Build(17)
    y = b.op("Add", b.input("x", [2, 3]), b.init([[1.5]], "c"))
    g = graph(b, b.op("Add", y, b.init([2.0], "d")))
    assert g.is_constant("c")
    assert g.is_constant("d")
    assert not g.is_constant("x")
    assert not g.is_scalar("c")  # rank 2
    assert g.is_scalar("d")
    assert g.shape("x") == [2, 3]
    assert str(g.dtype("x")) == "float32"
    value = g.value("d")
    assert value is not None
    assert value.tolist() == [2.0]


def test_what_bodies_read_is_an_edge() -> None:
    main, *inner = graphs_of(from_proto(ZOO["qdq_in_if"]()))
    assert inner
    reads = [name for step in main for name in step.body_reads]
    assert reads
    assert all((BODY in [i for _, i in main.edges(name)]) for name in reads)
