from __future__ import annotations

import numpy as np

from onnxq.edit import remove_all, set_inputs, users
from onnxq.folding.to_initializers import freeze
from onnxq.graph import Model
from tests.models.build import parse


def shared() -> Model:
    """One weight read by two nodes, by one of them twice."""
    return parse("""g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {3, 4}>
        { a = Sum(w, x, w) b = Mul(w, a) y = Add(a, b) }""")


def test_set_inputs_moves_single_links() -> None:
    model = shared()
    w, v = model.graph.record.constants
    sum_, mul, _ = model.nodes()
    set_inputs([(sum_, 2, v), (mul, 0, v)])
    assert [t.name for t in sum_.inputs] == ["w", "x", "v"]
    assert [(n.op, i) for n, i in users(w)] == [("Sum", 0)]
    assert [n.op for n in w.outputs] == ["Sum"]
    assert [n.op for n in v.outputs] == ["Sum", "Mul"]
    model.check()


def test_remove_all_cuts_every_link_of_the_removed_nodes_alone() -> None:
    model = shared()
    w, _ = model.graph.record.constants
    sum_, mul, add = model.nodes()
    remove_all([sum_, add])
    assert w.outputs[0] is mul
    assert len(w.outputs) == 1
    assert model.graph.inputs[0].outputs == []
    assert [n.op for n in model.nodes()] == ["Mul"]


def test_a_frozen_tensor_keeps_name_place_and_output() -> None:
    model = parse("""g (bool f, float[2] x) => (float[2] y, float[2] k) <float[2] w = {1, 2}> {
          k = Neg(w)
          y = If(f) <
            then_branch = t () => (float[2] a) { n = Exp(k) a = Mul(n, x) },
            else_branch = e () => (float[2] b) { b = Add(k, x) }
          > }""")
    neg, exp = model.nodes("Neg", "Exp")
    values = {
        id(neg.outputs[0]): np.array([-1, -2], np.float32),
        id(exp.outputs[0]): np.array([5, 6], np.float32),
    }
    freeze(model, [neg, exp], values)
    proto = model.to_proto()
    assert [t.name for t in proto.graph.initializer] == ["k"]
    assert [o.name for o in proto.graph.output] == ["y", "k"]
    (holder,) = proto.graph.node
    then = next(a.g for a in holder.attribute if a.name == "then_branch")
    assert [t.name for t in then.initializer] == ["n"]
    assert model.is_output(model.graph.outputs[1])
    model.check()


def test_nothing_to_freeze_changes_no_version() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset=8, ir_version=3)
    freeze(model, [], {})
    assert model.ir_version == 3
