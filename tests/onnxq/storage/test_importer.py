"""Everything a file says is kept, whatever graphsurgeon makes of it.

The tests named row_NN are the known faults of onnx-graphsurgeon 0.6.1, one each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    TensorProto,
    helper,
    numpy_helper,
)

from onnxq.edit import constant, new_node, set_input, variable
from onnxq.errors import InvalidModelError, PassError
from onnxq.graph import from_proto
from onnxq.graph.constants import array
from onnxq.storage.importer import BODY_OPS
from tests.checks.plain_run import run_plain
from tests.models.protos import (
    FLOAT,
    documented,
    info,
    kept,
    make,
    node_of,
    outer_uses,
    text,
    with_overloads,
)

# -- row 3: what is said about the model ------------------------------------------------------


def test_row_03_metadata_doc_strings_and_annotations_are_kept() -> None:
    model = kept(documented())
    assert (model.header.domain, model.header.model_version) == ("org.example", 7)
    assert [c.name for c in model.graph.record.constants] == ["w", "s"]


def test_row_03_metadata_of_an_edited_node_is_kept() -> None:
    model = from_proto(documented())
    mul = node_of(model, "Mul")
    set_input(mul, 1, constant(model, "w", np.float32([3, 4])))
    mul.op = "Div"
    node = model.to_proto().graph.node[0]
    assert (node.op_type, list(node.input)) == ("Div", ["x", "w_1"])
    assert (node.name, node.doc_string, node.metadata_props[0].value) == ("mul", "a node", "layer1")


def test_row_03_unread_scale_of_an_annotation_survives_an_edit() -> None:
    model = from_proto(documented())
    set_input(node_of(model, "Mul"), 1, constant(model, "w", np.float32([3, 4])))
    model.sweep()
    names = {t.name for t in model.to_proto().graph.initializer}
    assert names == {"s", "w_1"}  # the replaced weight goes, what never had a reader stays


def test_fields_of_a_newer_onnx_are_kept() -> None:
    unknown = b"\xfa\x3e\x03new"  # field 1007, which no message of this onnx has
    raw = ModelProto()
    raw.CopyFrom(documented())
    graph = GraphProto.FromString(raw.graph.SerializeToString() + unknown)
    raw.graph.CopyFrom(graph)
    proto = ModelProto.FromString(raw.SerializeToString() + unknown)
    assert kept(proto).to_proto().SerializeToString().count(unknown) == 2


# -- rows 4 to 8: functions, attributes, types ------------------------------------------------


def test_row_04_functions_and_overloads_are_kept() -> None:
    model = kept(with_overloads())
    assert [f.overload for f in model.functions] == ["a", "b"]
    (y,) = run_plain(model.to_proto(), {"x": np.float32([-1, 2])})
    assert y.tolist() == [1, 2]


def test_row_04_overload_goes_when_the_node_calls_something_else() -> None:
    model = from_proto(with_overloads())
    node = model.nodes("com.x::f")[0]
    node.op, node.domain = "Relu", None
    assert not model.to_proto().graph.node[0].overload


SPARSE = helper.make_sparse_tensor(
    numpy_helper.from_array(np.float32([5]), "sv"),
    numpy_helper.from_array(np.int64([1]), "si"),
    [2],
)
BODY = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "b", [], [info("z")])
ATTRIBUTES = {
    "float": 0.1,
    "nan": float("nan"),
    "int": -3,
    "string": "text",
    "tensor": numpy_helper.from_array(np.int8([1, 2]), "t"),
    "graph": BODY,
    "floats": [0.1, float("inf")],
    "ints": [1, 2],
    "strings": ["a", "b"],
    "tensors": [numpy_helper.from_array(np.float32([1]), f"t{i}") for i in range(2)],
    "graphs": [BODY, BODY],
    "sparse_tensor": SPARSE,
    "sparse_tensors": [SPARSE, SPARSE],
    "type_proto": helper.make_tensor_type_proto(FLOAT, [1, "N"]),
    "type_protos": [helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))],
}


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_row_05_attributes_of_every_kind_are_kept(kind: str) -> None:
    node = helper.make_node("Op", ["x"], ["y"], name="n", domain="com.x", value=ATTRIBUTES[kind])
    node.attribute[0].doc_string = "about it"
    proto = make([node])
    proto.opset_import.append(helper.make_opsetid("com.x", 1))
    model = kept(proto)
    (op,) = model.nodes("com.x::Op")
    op.attrs["added"] = 5  # another attribute changes, this one still comes from its source
    added = [a for a in model.to_proto().graph.node[0].attribute if a.name == "value"]
    assert added[0].SerializeToString() == node.attribute[0].SerializeToString()


@pytest.mark.parametrize("kind", ["INTS", "FLOATS", "STRINGS", "TENSORS", "GRAPHS"])
def test_row_06_empty_list_attribute_keeps_its_type(kind: str) -> None:
    node = helper.make_node("Op", ["x"], ["y"], domain="com.x")
    node.attribute.append(
        AttributeProto(name="axes", type=AttributeProto.AttributeType.Value(kind))
    )
    proto = make([node])
    proto.opset_import.append(helper.make_opsetid("com.x", 1))
    (op,) = kept(proto).nodes("com.x::Op")
    assert op.attrs["axes"] == [] or isinstance(op.attrs["axes"], AttributeProto)


def test_row_06_emptied_list_keeps_its_type_and_a_new_empty_list_is_refused() -> None:
    model = from_proto(text("g (float[2] x) => (float y) { y = ReduceMax<axes=[0]>(x) }", 13))
    node = node_of(model, "ReduceMax")
    node.attrs["axes"] = []
    attribute = model.to_proto().graph.node[0].attribute[0]
    assert (attribute.type, list(attribute.ints)) == (AttributeProto.INTS, [])
    node.attrs["more"] = []
    with pytest.raises(PassError, match="'more' is an empty list of unknown type"):
        model.to_proto()


def test_row_07_string_attributes_need_not_be_utf_8() -> None:
    node = helper.make_node("Op", ["x"], ["y"], domain="com.x", s=b"\xff\x00", l=[b"\xfe", b"ok"])
    proto = make([node])
    proto.opset_import.append(helper.make_opsetid("com.x", 1))
    (op,) = kept(proto).nodes("com.x::Op")
    assert op.attrs == {"s": b"\xff\x00", "l": [b"\xfe", "ok"]}


def value_type(inner: onnx.TypeProto) -> onnx.ValueInfoProto:
    return helper.make_value_info("x", inner)


TENSOR_TYPE = helper.make_tensor_type_proto(FLOAT, [2, "N", None])
TYPES = {
    "optional": helper.make_optional_type_proto(TENSOR_TYPE),
    "sequence": helper.make_sequence_type_proto(TENSOR_TYPE),
    "optional sequence": helper.make_optional_type_proto(
        helper.make_sequence_type_proto(TENSOR_TYPE)
    ),
    "sparse": helper.make_sparse_tensor_type_proto(FLOAT, [2]),
    "map": helper.make_map_type_proto(TensorProto.INT64, TENSOR_TYPE),
    "int4": helper.make_tensor_type_proto(TensorProto.INT4, [2]),
    "no shape": helper.make_tensor_type_proto(FLOAT, None),
    "type of a newer onnx": helper.make_tensor_type_proto(99, [2]),
}


@pytest.mark.parametrize("kind", TYPES)
def test_row_08_inputs_and_outputs_of_every_type_are_kept(kind: str) -> None:
    result = helper.make_value_info("y", TYPES[kind])
    kept(make([helper.make_node("Identity", ["x"], ["y"])], [value_type(TYPES[kind])], [result]))


def test_row_08_denotations_are_kept() -> None:
    proto = make([helper.make_node("Identity", ["x"], ["y"])])
    proto.graph.input[0].type.denotation = "IMAGE"
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_CHANNEL"
    kept(proto)


# -- row 9: initializers ----------------------------------------------------------------------


def test_row_09_initializer_that_is_an_input_stays_one() -> None:
    body = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
    model = kept(text(body))
    assert [t.name for t in model.graph.inputs] == ["x", "w"]
    weight = node_of(model, "Add").inputs[1]
    assert array(weight) is None  # the caller may replace it
    assert array(node_of(kept(text(body, 8, 3)), "Add").inputs[1]) is not None  # not before IR 4


def test_row_09_unused_initializer_and_unused_input_are_kept() -> None:
    model = kept(text("g (float[2] x, float u) => (float[2] y) <float k = {1}> { y = Neg(x) }"))
    model.sweep()
    proto = model.to_proto()
    assert [t.name for t in proto.graph.initializer] == ["k"]
    assert [i.name for i in proto.graph.input] == ["x", "u"]


def test_row_09_raising_an_old_model_keeps_weights_constant() -> None:
    """From IR 4 on an initializer listed as input could be replaced, so it is not listed."""
    body = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
    model = from_proto(text(body, 8, 3))
    before = run_plain(model.to_proto(), {"x": np.float32([3, 4])})
    add = node_of(model, "Add")
    set_input(add, 1, constant(model, "w2", np.float32([10, 20])))
    add2 = new_node(model, "Add", [add.outputs[0], model.graph.inputs[1]], [], name="again")
    add2.outputs.append(variable(model, "z", like=None))
    proto = model.to_proto()
    assert proto.ir_version == 4
    assert model.export_notes == [
        "IR version 3 -> 4: initializers made by passes are not graph inputs"
    ]
    assert [i.name for i in proto.graph.input] == ["x"]
    assert model.ir_version == 3  # the model itself is as it was
    assert [i.name for i in from_proto(proto).graph.inputs] == ["x"]
    assert (run_plain(proto, {"x": np.float32([3, 4])})[0] - before[0]).tolist() == [9, 18]


def test_ir_3_model_without_new_initializer_keeps_its_version() -> None:
    model = from_proto(text("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", 8, 3))
    node_of(model, "Add").op = "Mul"
    assert model.to_proto().ir_version == 3


def test_constant_nodes_of_every_kind_are_kept_and_read() -> None:
    kinds: dict[str, tuple[Any, np.dtype[Any], list[Any]]] = {
        "value": (numpy_helper.from_array(np.int8([1, 2])), np.dtype("int8"), [1, 2]),
        "value_float": (0.5, np.dtype("float32"), 0.5),
        "value_floats": ([0.5, 1.5], np.dtype("float32"), [0.5, 1.5]),
        "value_int": (3, np.dtype("int64"), 3),
        "value_ints": ([3, 4], np.dtype("int64"), [3, 4]),
        "value_string": ("a", np.dtype("O"), "a"),
        "value_strings": (["a", "b"], np.dtype("O"), ["a", "b"]),
        "sparse_value": (SPARSE, np.dtype("float32"), [0, 5]),
    }
    nodes = [
        helper.make_node("Constant", [], [f"{key}.out"], **{key: value})
        for key, (value, _, _) in kinds.items()
    ]
    outputs = [helper.make_value_info(f"{key}.out", onnx.TypeProto()) for key in kinds]
    model = kept(make(nodes, [], outputs))
    for node, (_, dtype, expected) in zip(model.nodes("Constant"), kinds.values(), strict=True):
        value = array(node.outputs[0])
        assert value is not None
        assert (value.dtype, value.tolist()) == (dtype, expected)


def test_sparse_initializers_are_kept_and_read() -> None:
    dims = [2, 3]
    values = numpy_helper.from_array(np.float32([5, 6]), "w")
    linear = numpy_helper.from_array(np.int64([1, 5]), "")
    pairs = numpy_helper.from_array(np.int64([[0, 1], [1, 2]]), "")
    for indices in (linear, pairs):
        proto = make([helper.make_node("Identity", ["w"], ["y"])], [], [info("y", [2, 3])])
        proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, dims))
        model = kept(proto)
        read = array(node_of(model, "Identity").inputs[0])
        assert read is not None
        assert read.tolist() == [[0, 5, 0], [0, 0, 6]]


# -- subgraphs --------------------------------------------------------------------------------


def test_subgraphs_with_outer_uses_are_kept_and_linked() -> None:
    model = kept(outer_uses())
    assert [n.op for n in model.nodes()] == ["Relu", "If", "Mul", "Constant", "Add", "Add"]
    relu = node_of(model, "Relu")
    assert [n.op for n in relu.outputs[0].outputs] == ["Mul"]
    weight = model.graph.record.constants[0]
    assert [n.op for n in weight.outputs] == ["Mul", "Add"]


def test_constants_made_in_a_body_are_visible_there() -> None:
    model = from_proto(outer_uses())
    set_input(node_of(model, "Mul"), 1, constant(model, "w", np.float32([10, 20])))
    proto = model.to_proto()
    assert [t.name for t in proto.graph.initializer] == ["w", "w_1"]
    assert run_plain(proto, {"c": np.array(True), "x": np.float32([1, 2])})[0].tolist() == [10, 40]
    assert run_plain(proto, {"c": np.array(False), "x": np.float32([1, 2])})[0].tolist() == [9, 12]


def test_body_may_use_what_an_unsorted_graph_makes_later() -> None:
    proto = outer_uses()
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    written = from_proto(proto).to_proto()
    assert [n.op_type for n in written.graph.node] == ["Relu", "If"]
    assert run_plain(written, {"c": np.array(True), "x": np.float32([3, 4])})[0].tolist() == [3, 8]


def test_body_that_returns_an_outer_tensor_keeps_its_own_declaration() -> None:
    proto = text(
        """g (bool c, float[2] x) => (float[2] y, float[2] t) {
            t = Relu(x)
            y = If (c) < then_branch = then () => (float[N] t) { },
                         else_branch = other () => (float b) { b = Neg(t) } >
        }"""
    )
    kept(proto)


def test_body_names_may_hide_outer_names() -> None:
    proto = text(
        """g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            t = Mul(x, w)
            y = If (c) <
                then_branch = then () => (float[2] a) <float[2] w = {5, 6}> { a = Mul(t, w) },
                else_branch = other () => (float[2] b) { b = Mul(t, w) } >
        }"""
    )
    model = kept(proto)
    first, inner, outer = model.nodes("Mul")
    assert inner.inputs[1] is not first.inputs[1]
    assert outer.inputs[1] is first.inputs[1]
    set_input(inner, 1, first.inputs[1])  # by name this would be the inner one
    with pytest.raises(InvalidModelError, match="two tensors are named 'w'"):
        model.check()


def test_nodes_lists_bodies_behind_their_node_and_by_domain() -> None:
    model = from_proto(text("g (float[2] x) => (float[2] y) { t = com.x.Neg (x)  y = Neg(t) }"))
    assert [n.op for n in model.nodes("Neg")] == ["Neg"]
    assert model.nodes("Neg")[0].domain in (None, "")
    assert [n.domain for n in model.nodes("com.x::Neg")] == ["com.x"]
    assert len(model.nodes("Neg", "com.x::Neg")) == 2


# -- bodies -----------------------------------------------------------------------------------


def test_the_operators_with_bodies_are_those_of_onnx() -> None:
    kinds = {onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS}
    known = {
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        if not schema.domain and any(a.type in kinds for a in schema.attributes.values())
    }
    assert known == BODY_OPS


def test_a_body_of_an_operator_that_has_none_is_refused() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    proto.graph.node[0].attribute.append(helper.make_attribute("body", proto.graph))
    with pytest.raises(InvalidModelError, match="'y': attribute 'body' is a graph, but Relu"):
        from_proto(proto)
