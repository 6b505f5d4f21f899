"""A graph from layers: names, shapes, quantizers."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import LoadError
from onnxq.ncnn.program import Layer
from onnxq.ncnn.read_graph import Graph, same, shape_of


def test_shapes() -> None:
    assert shape_of(Layer("Input", "x", (), ("x",), {0: 5})) == [5]
    assert shape_of(Layer("Input", "x", (), ("x",), {0: 5, 1: 4, 2: 3})) == [3, 4, 5]
    assert shape_of(Layer("Input", "x", (), ("x",), {0: 5, 1: 4, 11: 3, 2: 2})) == [2, 3, 4, 5]
    for params in ({}, {0: 0}, {0: 4, 11: 3}):
        with pytest.raises(LoadError):
            shape_of(Layer("Input", "x", (), ("x",), params))


def test_aliases_follow_each_other() -> None:
    graph = Graph()
    graph.rank["a"] = 3
    graph.alias("b", "a")
    graph.alias("c", "b")
    assert (graph.name("c"), graph.rank["c"]) == ("a", 3)


def test_one_operator_for_a_layer() -> None:
    graph = Graph()
    graph.rank["x"] = 2
    same("Elu", lambda layer: {"alpha": 0.5})(graph, Layer("ELU", "e", ("x",), ("y",)))
    (node,) = graph.proto.node
    assert (node.op_type, list(node.input), list(node.output)) == ("Elu", ["x"], ["y"])
    assert graph.rank["y"] == 2


def test_quantizers_bring_their_parameters() -> None:
    graph = Graph()
    graph.fake("x", "y", np.array([0.5, 1.0]), axis=1)
    assert [i.name for i in graph.proto.initializer] == ["y.scale", "y.zero_point"]
    assert {a.name: a.i for a in graph.proto.node[0].attribute}["axis"] == 1
