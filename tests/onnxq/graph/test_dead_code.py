"""Nodes are taken out by identity, in linear time, and with them what nobody needs any more.

The tests named row_NN are known faults of onnx-graphsurgeon 0.6.1, as in test_graph.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper, numpy_helper

from onnxq.edit import constant, new_node, remove, replace, set_input, variable
from onnxq.graph import from_proto
from onnxq.graph.dead_code import detach
from tests.checks.work import assert_linear
from tests.models.build import parse
from tests.models.protos import info, kept, make, node_of, outer_uses, text, twins


def test_row_12_of_two_alike_the_right_one_is_removed() -> None:
    model = from_proto(twins())
    first, second = model.nodes("Relu")
    for node in (first, second):
        node.outputs[0].name = "same"  # makes them equal by value
    assert first == second
    remove(second, model)
    (reader,) = model.graph.inputs[0].outputs
    assert reader is first
    assert [n is first for n in model.nodes("Relu")] == [True]


@pytest.mark.parametrize("order", [1, -1])
def test_row_13_detaching_many_readers_of_one_tensor_is_linear(order: int) -> None:
    def prepare(count: int) -> Callable[[], object]:
        nodes = [helper.make_node("Add", ["x", "zero"], [f"y{i}"]) for i in range(count)]
        zero = [numpy_helper.from_array(np.float32([0, 0]), "zero")]
        outputs = [info(f"y{i}") for i in range(count)]
        model = from_proto(make(nodes, outputs=outputs, initializer=zero))

        def detach_all() -> None:
            for node in model.nodes("Add")[::order]:
                detach(node)
            assert not model.graph.inputs[0].outputs
            assert not model.graph.record.constants[0].outputs

        return detach_all

    assert_linear(prepare, 100)


def test_sweep_drops_what_lost_its_readers_in_any_order() -> None:
    """Nodes made by passes stand at the end, behind what reads them."""
    model = from_proto(text("g (float[2] x) => (float[2] y) { t = Relu(x)  y = Neg(t) }"))
    relu, neg = model.nodes()
    first = variable(model, "first", like=None)
    second = variable(model, "second", like=None)
    late = new_node(model, "Abs", [first], [second], name="late")
    new_node(model, "Exp", [model.graph.inputs[0]], [first], name="later")
    set_input(neg, 0, second)
    assert model.sweep() == 1  # Relu
    set_input(neg, 0, model.graph.inputs[0])
    assert model.sweep() == 2
    assert [n.op for n in model.graph.nodes] == ["Neg"]
    assert late.removed
    assert relu.removed


def test_sweep_drops_what_only_the_body_of_a_removed_node_read() -> None:
    model = from_proto(outer_uses())
    branch = node_of(model, "If")
    replace(branch, model.graph.inputs[1], model)
    model.sweep()
    proto = model.to_proto()
    assert [n.op_type for n in proto.graph.node] == ["Identity"]
    assert not proto.graph.initializer


def test_sweep_keeps_what_had_no_reader_at_load() -> None:
    model = kept(text("g (float[2] x) => (float[2] y) { unread = Abs(x)  y = Neg(x) }"))
    assert model.sweep() == 0
    assert len(model.to_proto().graph.node) == 2


def test_the_name_of_a_constant_that_is_gone_may_be_taken_again() -> None:
    model = parse(
        """g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {3, 4}>
        { a = Add(x, w) b = Add(a, v) y = Relu(a) }"""
    )
    assert model.fresh_name("w") == "w_1"
    adder = model.nodes("Add")[0]
    set_input(adder, 1, constant(model, "w", np.ones(2, np.float32)))
    remove(model.nodes("Add")[1], model)
    model.sweep()
    assert model.fresh_name("w") == "w"
    assert model.fresh_name("v") == "v"
    assert [t.name for t in model.to_proto().graph.initializer] == ["w_2"]
