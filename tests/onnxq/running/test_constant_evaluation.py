from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

import onnxq.running.constant_evaluation
from onnxq.graph import from_proto
from onnxq.running.constant_evaluation import Evaluator, known_values
from onnxq.running.sessions import Session, reference
from tests.models import zoo
from tests.models.zoo_build import Build


def chain(length: int, bad: int | None = None) -> tuple[Evaluator, list[gs.Node]]:
    """A chain of Neg over one constant; number `bad` is a Gather outside its data."""
    b = Build()
    value = b.init(b.random(3))
    for number in range(length):
        last = b.op("Neg", value)
        if number == bad:
            b.op("Add", b.op("Gather", value, b.ints(7)), last, out="sum")
        value = last
    model = from_proto(b.model(value, *([] if bad is None else ["sum"])))
    return Evaluator(model), model.nodes()


def test_values_are_those_of_the_session() -> None:
    evaluator, nodes = chain(5)
    evaluator.run(nodes)
    (value,) = evaluator.values.values()
    np.testing.assert_array_equal(value, -known_values(nodes[0].inputs[0]).load())
    assert evaluator.refused == []


def test_one_session_for_all_and_few_to_find_the_node_at_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sessions = []

    def counted(model: object) -> Session:
        sessions.append(model)
        return reference(model)  # type: ignore[arg-type]

    monkeypatch.setattr(onnxq.running.constant_evaluation, "reference", counted)
    evaluator, nodes = chain(60)
    evaluator.run(nodes)
    assert len(sessions) == 1
    sessions.clear()
    evaluator, nodes = chain(60, bad=21)
    evaluator.run(nodes)
    assert [node.op for node, _ in evaluator.refused] == ["Gather"]
    assert "out of data bounds" in evaluator.refused[0][1]
    assert len(sessions) <= 2 * 6 + 2
    assert id(nodes[-1].outputs[0]) in evaluator.values


def test_sizes_are_told_before_anything_runs() -> None:
    b = Build()
    x = b.op("Expand", b.init(np.float32(1)), b.op("Add", b.ints(3, 4), b.ints(1, 1)))
    model = from_proto(b.model(b.op("Add", x, b.input("x", [5]))))
    nodes = [n for n in model.nodes() if n.outputs[0].name != model.graph.outputs[0].name]
    sizes = Evaluator(model).sizes(nodes)
    assert sizes[id(nodes[0].outputs[0])] == 2 * 8
    assert sizes[id(nodes[1].outputs[0])] == 4 * 5 * 4


def test_known_values() -> None:
    """Initializers and Constant nodes of each kind, but nothing the caller may replace."""
    model = from_proto(zoo.ZOO["constants_of_each_kind"]())
    constants = model.nodes("Constant")
    assert len(constants) == 6
    assert all(known_values(n.outputs[0]) is not None for n in constants)
    assert known_values(model.graph.inputs[0]) is None
    model = from_proto(zoo.ZOO["initializer_is_input"]())
    (weight,) = [c for c in model.graph.record.constants if c.name == "w"]
    assert known_values(weight) is None
