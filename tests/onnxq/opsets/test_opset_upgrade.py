"""Raising the opset keeps what a model carries, and is done completely or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from onnxq.graph import from_proto
from onnxq.opsets.opset_upgrade import raise_opset
from tests.checks.plain_run import run_plain
from tests.checks.same_model import assert_same
from tests.models.opset_cases import CASES, X, case, floats, raised, refused

# -- what is kept -----------------------------------------------------------------------------


def test_nothing_happens_when_the_opset_is_enough() -> None:
    proto, _ = CASES["GridSample-20"]
    assert_same(proto, raised(proto, 13))
    model = from_proto(proto)
    raise_opset(model, 16, "test")
    assert model.upgrades == []


def test_raising_is_reported_and_ir_version_follows() -> None:
    model = from_proto(CASES["Conv"][0])
    model.require_opset(21, "4-bit weights")
    assert model.upgrades == ["opset 7 -> 21: 4-bit weights", "IR version 4 -> 10: opset 21"]
    assert (model.opset, model.ir_version) == (21, 10)


def test_metadata_of_rewritten_nodes_is_kept() -> None:
    proto = ModelProto()
    proto.CopyFrom(CASES["Clip-11"][0])
    node = proto.graph.node[1]
    node.doc_string = "about it"
    node.metadata_props.add(key="scope", value="layer")
    proto.metadata_props.add(key="author", value="me")
    written = raised(proto, 21)
    kept = written.graph.node[1]
    assert (kept.name, kept.doc_string) == ("the Clip", "about it")
    assert kept.metadata_props[0].value == "layer"
    assert written.metadata_props[0].value == "me"
    assert list(kept.input) == ["first", "the Clip.min", "the Clip.max"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("declared", [True, False])
def test_bounds_have_the_type_of_their_tensor(dtype: Any, declared: bool) -> None:
    """Half precision too, where 'no bound' overflows."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto, _ = case(
        10, "Clip", X.astype(dtype), outputs=(kind,), declared=False, min=0.0, max=3.4e38
    )
    if declared:
        proto.graph.value_info.append(helper.make_tensor_value_info("first", kind, X.shape))
    (y,) = run_plain(raised(proto, 13), {"in0": X.astype(dtype)})
    assert np.array_equal(y, np.maximum(-X.astype(dtype), 0))


def test_nodes_in_bodies_are_raised() -> None:
    def branch(name: str, *nodes: NodeProto) -> Any:
        return helper.make_graph(
            list(nodes), name, [], [helper.make_tensor_value_info(f"{name}.out", 1, None)]
        )

    choice = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch("a", helper.make_node("Clip", ["x"], ["a.out"], min=0.0)),
        else_branch=branch("b", helper.make_node("Softmax", ["x"], ["b.out"])),
    )
    graph = helper.make_graph(
        [choice],
        "g",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", 1, X.shape),
        ],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    for chosen in (True, False):
        feeds = {"c": np.array(chosen), "x": X}
        np.testing.assert_allclose(
            run_plain(proto, feeds), run_plain(raised(proto, 21), feeds), rtol=1e-6
        )


def test_private_and_foreign_operators_are_left_alone() -> None:
    """Operators that ONNX does not know at the model's version, though it may know them later."""
    proto, _ = case(13, "LayerNormalization", X, fixed=(floats(6),))
    proto.graph.node[1].attribute.append(helper.make_attribute("private", 1))
    proto.graph.node.append(helper.make_node("Clip", ["in0"], ["z"], domain="com.x", min=1.0))
    proto.graph.node.append(helper.make_node("InsertZeros", ["in0"], ["u"], stride=2))
    proto.opset_import.append(helper.make_opsetid("com.x", 1))
    written = raised(proto, 21)
    proto.opset_import[0].version, proto.ir_version = 21, 10
    assert_same(proto, written)


def test_attribute_that_no_schema_has_is_left_alone() -> None:
    """Some tools write 'axis' on QuantizeLinear at opset 10, where it does not exist yet."""
    proto, _ = CASES["QuantizeLinear"]
    twin = ModelProto()
    twin.CopyFrom(proto)
    twin.graph.node[1].attribute.append(helper.make_attribute("axis", 0))
    twin.graph.node[1].attribute.append(helper.make_attribute("vendor", "x"))
    assert len(raised(twin, 13).graph.node[1].attribute) == 2


def test_model_without_default_domain_gets_the_version_asked_for() -> None:
    proto = helper.make_model(
        helper.make_graph([], "g", [], []), opset_imports=[helper.make_opsetid("com.x", 1)]
    )
    proto.ir_version = 8
    model = from_proto(proto)
    model.require_opset(13, "test")
    assert model.opset == 13


def test_both_spellings_of_the_default_domain_are_raised() -> None:
    proto = ModelProto()
    proto.CopyFrom(CASES["Conv"][0])
    proto.opset_import.append(helper.make_opsetid("ai.onnx", 7))
    assert {e.version for e in raised(proto, 13).opset_import} == {13}


# -- functions --------------------------------------------------------------------------------


def with_function(body: list[NodeProto], opset: int = 9) -> ModelProto:
    function = helper.make_function(
        "com.x", "f", ["i"], ["o"], body, [helper.make_opsetid("", opset)]
    )
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("f", ["x"], ["y"], domain="com.x")],
            "g",
            [helper.make_tensor_value_info("x", 1, [2])],
            [helper.make_tensor_value_info("y", 1, [2])],
        ),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.x", 1)],
        ir_version=8,
        functions=[function],
    )
    return proto


def test_function_of_unchanged_operators_is_restamped() -> None:
    proto = with_function([helper.make_node("Relu", ["i"], ["o"])], 14)
    written = raised(proto, 21)
    assert [e.version for e in written.functions[0].opset_import] == [21]
    assert run_plain(written, {"x": np.float32([-1, 2])})[0].tolist() == [0, 2]
    assert proto.functions[0].opset_import[0].version == 14


def test_function_of_changed_operators_is_refused() -> None:
    proto = with_function([helper.make_node("Clip", ["i"], ["o"], min=0.0)])
    refused(proto, 13, "function 'com.x::f' uses Clip")


def test_function_of_changed_operators_in_a_body_is_refused() -> None:
    inner = helper.make_graph(
        [helper.make_node("Clip", ["i"], ["z"], min=0.0)],
        "b",
        [],
        [helper.make_tensor_value_info("z", 1, None)],
    )
    true = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True)))
    choice = helper.make_node("If", ["c"], ["o"], then_branch=inner, else_branch=inner)
    proto = with_function([true, choice])
    proto.functions[0].opset_import[0].version = 10
    # If and Constant changed at 11, so look at a step where only the Clip inside did.
    proto.functions[0].node[0].domain = proto.functions[0].node[1].domain = "com.x"
    refused(proto, 13, "function 'com.x::f' uses Clip")
