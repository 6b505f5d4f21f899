"""Nodes are found by operator whatever was done to the list since the last question."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.edit import identity, new_node, remove, variable
from onnxq.graph import Model
from tests.models.build import parse

CHAIN = """
chain (float[2] x) => (float[2] y) {
    a = Relu(x)
    b = Neg(a)
    c = Relu(b)
    y = Abs(c)
}
"""


def _outputs(model: Model, *ops: str) -> list[str]:
    return [node.outputs[0].name for node in model.nodes(*ops)]


def test_several_operators_come_in_the_order_of_the_graph() -> None:
    model = parse(CHAIN)
    assert _outputs(model, "Abs", "Relu", "Missing") == ["a", "c", "y"]


def test_a_new_node_and_a_changed_operator_are_found() -> None:
    model = parse(CHAIN)
    assert _outputs(model, "Exp") == []
    neg, *_ = model.nodes("Neg")
    neg.op = "Exp"
    assert _outputs(model, "Exp") == ["b"]
    assert _outputs(model, "Neg") == []
    out = variable(model, "new", None)
    new_node(model, "Exp", [neg.outputs[0]], [out], name="late")
    assert _outputs(model, "Exp") == ["b", "new"]
    identity(neg, neg.inputs[0])
    assert _outputs(model, "Exp", "Identity") == ["b", "new"]


def test_a_node_made_by_graphsurgeon_is_found_removed_and_swept() -> None:
    model = parse(CHAIN)
    own = gs.Node("Tanh", "own", {}, [model.nodes("Neg")[0].outputs[0]], [gs.Variable("t")])
    model.graph.nodes.append(own)
    assert [n.name for n in model.nodes("Tanh")] == ["own"]
    remove(own, model)
    assert model.nodes("Tanh") == []
    model.sweep()
    assert all(node.op != "Tanh" for node in model.graph.nodes)


def test_after_a_sweep_the_index_starts_anew() -> None:
    model = parse(CHAIN)
    assert len(model.nodes("Relu")) == 2
    relu = model.nodes("Relu")[1]
    out, source = relu.outputs[0], relu.inputs[0]
    remove(relu, model)
    new_node(model, "Selu", [source], [out], name="selu", instead_of=relu)
    model.sweep()
    assert [node.op for node in model.graph.nodes] == ["Relu", "Neg", "Selu", "Abs"]
    assert _outputs(model, "Selu") == ["c"]
    assert _outputs(model, "Abs") == ["y"]


def test_an_heir_that_was_removed_itself_leaves_no_place() -> None:
    model = parse(CHAIN)
    relu = model.nodes("Relu")[1]
    out, source = relu.outputs[0], relu.inputs[0]
    remove(relu, model)
    first = new_node(model, "Selu", [source], [out], name="selu", instead_of=relu)
    remove(first, model)
    new_node(model, "Elu", [source], [out], name="elu", instead_of=first)
    model.sweep()
    assert [node.op for node in model.graph.nodes] == ["Relu", "Neg", "Elu", "Abs"]
    model.check()
