from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import from_proto
from onnxq.pipeline import Pipeline
from onnxq.storage.tensors import StoredValues
from passes.lower_constants import LowerConstants
from tests.checks.applied import apply_checked
from tests.models.build import parse

SPARSE = helper.make_sparse_tensor(
    helper.make_tensor("v", TensorProto.FLOAT, [2], [1.5, -2.0]),
    helper.make_tensor("i", TensorProto.INT64, [2], [1, 5]),
    [2, 3],
)


@pytest.mark.parametrize(
    ("attribute", "want"),
    [
        ({"value_float": 0.1}, np.float32(0.1)),
        ({"value_floats": [0.1, 2.0]}, np.array([0.1, 2.0], np.float32)),
        ({"value_int": -7}, np.int64(-7)),
        ({"value_ints": [1, 2, 3]}, np.array([1, 2, 3], np.int64)),
        ({"value_string": "dö"}, np.array("dö", object)),
        ({"value_strings": ["a", "b"]}, np.array(["a", "b"], object)),
        ({"value": numpy_helper.from_array(np.float64(3))}, np.float64(3)),
        ({"sparse_value": SPARSE}, np.array([[0, 1.5, 0], [0, 0, -2]], np.float32)),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_attribute_becomes_an_initializer_of_its_type(
    attribute: dict[str, object], want: np.ndarray
) -> None:
    """value_float is float32: as float64, no runtime would accept the model."""
    kind = helper.np_dtype_to_tensor_dtype(np.asarray(want).dtype)
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["c"], **attribute),
            helper.make_node("Identity", ["c"], ["y"]),
        ],
        "g",
        [],
        [helper.make_tensor_value_info("y", kind, np.shape(want))],
    )
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    done = apply_checked(proto, LowerConstants())
    assert done.ops() == ["Identity"]
    made = done.initializers()["c"]
    assert made.dtype == np.asarray(want).dtype
    np.testing.assert_array_equal(made, want)
    assert len(done.trace.rewrites) == 1


def test_a_constant_that_is_a_graph_output_keeps_its_name() -> None:
    done = apply_checked(
        """g (float[2] x) => (float[2] y, float[2] c)
        { c = Constant <value_floats = [1.0, 2.0]> () y = Add(x, c) }""",
        LowerConstants(),
    )
    assert done.ops() == ["Add"]
    assert [o.name for o in done.proto.graph.output] == ["y", "c"]
    assert list(done.initializers()) == ["c"]


def test_bodies_may_use_one_name_for_different_constants() -> None:
    done = apply_checked(
        """g (bool flag, float[2] x) => (float[2] y) {
          y = If(flag) <
            then_branch = t () => (float[2] a)
              { c = Constant <value_float = 2.0> () a = Mul(x, c) },
            else_branch = e () => (float[2] b)
              { c = Constant <value_float = 5.0> () b = Add(x, c) }
          > }""",
        LowerConstants(),
    )
    assert sorted(done.ops()) == ["Add", "If", "Mul"]


def test_a_body_may_return_a_constant() -> None:
    done = apply_checked(
        """g (bool flag, float[2] x) => (float[2] y) {
          y = If(flag) <
            then_branch = t () => (float[2] c) { c = Constant <value_floats = [1.0, 2.0]> () },
            else_branch = e () => (float[2] b) { b = Relu(x) }
          > }""",
        LowerConstants(),
    )
    assert sorted(done.ops()) == ["If", "Relu"]


def test_an_outer_constant_is_seen_in_bodies() -> None:
    done = apply_checked(
        """g (bool flag, float[2] x) => (float[2] y) {
          c = Constant <value_floats = [1.0, 2.0]> ()
          y = If(flag) <
            then_branch = t () => (float[2] a) { a = Mul(x, c) },
            else_branch = e () => (float[2] b) { b = Add(x, c) }
          > }""",
        LowerConstants(),
    )
    assert list(done.initializers()) == ["c"]


def test_what_nobody_reads_stays_as_it_was_put_there() -> None:
    done = apply_checked(
        "g (float[2] x) => (float[2] y) { c = Constant <value_float = 2.0> () y = Relu(x) }",
        LowerConstants(),
    )
    assert list(done.initializers()) == ["c"]


def test_old_models_get_the_ir_version_that_allows_it() -> None:
    model = parse(
        """g (float[1] x) => (float[1] y)
        { c = Constant <value = float {2}> () y = Add(x, c) }""",
        opset=8,
        ir_version=3,
    )
    done = apply_checked(model, LowerConstants())
    assert done.proto.ir_version == 4
    assert any("IR version 3 -> 4" in note for note in done.trace.notes)


def test_four_bit_values_are_neither_unpacked_nor_copied() -> None:
    codes = np.array([[1, -8, 7]], ml_dtypes.int4)
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["q"], value=numpy_helper.from_array(codes, "q")),
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"]),
            helper.make_node("Mul", ["x", "w"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(np.float32(0.5), "s")],
    )
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    model = from_proto(proto)
    stored = model.nodes("Constant")[0].attrs["value"]._values
    result = Pipeline(LowerConstants()).run(model).model
    made = result.nodes("DequantizeLinear")[0].inputs[0]
    assert made._values is stored
    assert isinstance(made._values, StoredValues)
    assert [
        t.data_type for t in apply_checked(proto, LowerConstants()).proto.graph.initializer
    ] == [
        TensorProto.FLOAT,
        TensorProto.INT4,
    ]


def test_a_constant_without_a_value_is_left_with_a_reason() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto = model.to_proto()
    proto.graph.node.insert(0, onnx.NodeProto(op_type="Constant", output=["c"]))
    trace = Pipeline(LowerConstants()).run(from_proto(proto)).traces[0]
    assert trace.rewrites == []
    assert len(trace.skips) == 1
    assert "contains a value" in trace.skips[0].reason
