"""Graphs that break ONNX's rules are refused, with the name of what is wrong."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from onnx import (
    GraphProto,
    ModelProto,
    TensorProto,
    helper,
    numpy_helper,
)

from onnxq.edit import set_input
from onnxq.errors import InvalidModelError, LoadError
from onnxq.graph import from_proto
from onnxq.graph.constants import array
from tests.models.protos import FLOAT, chain, info, make, node_of, outer_uses, twins

# -- the structural check ---------------------------------------------------------------------

BROKEN = {
    "duplicate output": (chain(1) * 2, "'y' has two producers"),
    "cycle": (
        [
            helper.make_node("Add", ["x", "b"], ["a"]),
            helper.make_node("Add", ["a", "x"], ["b"]),
            helper.make_node("Neg", ["b"], ["y"]),
        ],
        "depends on its own output",
    ),
    "self cycle": ([helper.make_node("Add", ["x", "y"], ["y"], name="n")], "'n' .*its own output"),
    "dangling input": (
        [helper.make_node("Add", ["x", "q"], ["y"])],
        "reads 'q', which has no producer",
    ),
    "no inputs": ([helper.make_node("Clip", [], ["y"], name="n")], "'n' .Clip. has no inputs"),
    "blank input": (
        [helper.make_node("Concat", ["", "x"], ["y"], axis=0)],
        "Concat.* lacks the required input 1",
    ),
    "missing output": ([helper.make_node("Neg", ["x"], ["z"])], "graph output 'y' has no producer"),
    "input made by node": (
        [helper.make_node("Neg", ["x"], ["x"]), helper.make_node("Neg", ["x"], ["y"])],
        "'x' is a graph input",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_graph_is_refused_with_the_name(what: str) -> None:
    nodes, message = BROKEN[what]
    with pytest.raises(InvalidModelError, match=message) as caught:
        from_proto(make(nodes))
    assert "export it again" in caught.value.fix


def test_operators_that_need_no_input_and_private_ones_are_taken() -> None:
    nodes = [
        helper.make_node("RandomNormal", [], ["a"], shape=[2]),
        helper.make_node("Noise", [], ["b"], domain="other"),
        helper.make_node("Sum", ["x", "a", "b"], ["y"]),
    ]
    model = from_proto(make(nodes))
    assert [node.op for node in model.nodes()] == ["RandomNormal", "Noise", "Sum"]


def test_two_inputs_or_initializers_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidModelError, match="two graph inputs are named 'x'"):
        from_proto(make(chain(1), [info("x"), info("x")]))
    weights = [numpy_helper.from_array(np.float32([i]), "w") for i in range(2)]
    with pytest.raises(InvalidModelError, match="two tensors are named 'w'"):
        from_proto(make(chain(1), initializer=weights))


def test_initializer_made_by_a_node_is_refused() -> None:
    weight = numpy_helper.from_array(np.float32([1, 2]), "y")
    with pytest.raises(InvalidModelError, match="'y' is a graph input or initializer and also"):
        from_proto(make(chain(1), initializer=[weight]))


def test_broken_body_is_refused() -> None:
    proto = outer_uses()
    branch = proto.graph.node[1].attribute[0].g
    branch.node[0].input[0] = "nowhere"
    with pytest.raises(InvalidModelError, match="reads 'nowhere'"):
        from_proto(proto)


def test_body_that_reads_the_result_of_its_node_is_a_cycle() -> None:
    proto = outer_uses()
    proto.graph.node[1].attribute[0].g.node[0].input[0] = "y"
    with pytest.raises(InvalidModelError, match="its own output"):
        from_proto(proto)


def test_two_made_constants_of_one_name_are_refused() -> None:
    model = from_proto(twins())
    for node in model.nodes("Neg"):
        set_input(node, 0, gs.Constant("same", np.float32([1, 2])))
    with pytest.raises(InvalidModelError, match="two tensors are named 'same'"):
        model.check()


def test_conflicting_opset_imports_are_refused() -> None:
    proto = make(chain(1))
    proto.opset_import.append(helper.make_opsetid("", 12))
    with pytest.raises(InvalidModelError, match="two versions of domain ''"):
        from_proto(proto)


def test_protobuf_that_is_no_model_is_refused() -> None:
    for proto in (ModelProto(), ModelProto(ir_version=8), ModelProto(graph=GraphProto(name="g"))):
        with pytest.raises(LoadError, match="not an ONNX model"):
            from_proto(proto)


def test_damaged_tensor_is_named_when_it_is_read() -> None:
    broken = TensorProto(name="w", data_type=FLOAT, dims=[3], raw_data=b"1234")
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    model = from_proto(make(nodes, initializer=[broken]))
    with pytest.raises(InvalidModelError, match=r"'w'.*\[3\]"):
        array(node_of(model, "Add").inputs[1])
