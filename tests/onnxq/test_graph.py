"""The boundary over graphsurgeon: what its own importer and exporter get wrong stays right here.

The tests named row_NN are the known faults of onnx-graphsurgeon 0.6.1, one each.
"""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime as ort
import pytest
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
    parser,
)

from onnxq.edit import array, constant, new_node, remove, replace, set_input, variable
from onnxq.errors import InvalidModelError, LoadError, PassError
from onnxq.graph import Model, detach, from_proto, new_model
from tests.same_model import assert_same, is_sorted

FLOAT = TensorProto.FLOAT


def info(name: str, shape: list[int | str] | None = None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [2] if shape is None else shape)


def make(
    nodes: list[NodeProto],
    inputs: list[onnx.ValueInfoProto] | None = None,
    outputs: list[onnx.ValueInfoProto] | None = None,
    *,
    opset: int = 17,
    ir_version: int = 8,
    **graph: Any,
) -> ModelProto:
    built = helper.make_graph(
        nodes,
        "g",
        [info("x")] if inputs is None else inputs,
        [info("y")] if outputs is None else outputs,
        **graph,
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(built, opset_imports=imports, ir_version=ir_version)


def text(body: str, opset: int = 17, ir_version: int = 8) -> ModelProto:
    return parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "com.x" : 1]>\n{body}'
    )


def run(proto: ModelProto, **feeds: Any) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, feeds)


def kept(proto: ModelProto) -> Model:
    """The model of `proto`, after checking that it and its copy write back the same."""
    before = ModelProto()
    before.CopyFrom(proto)
    model = from_proto(proto)
    assert_same(before, model.to_proto())
    assert_same(before, model.clone().to_proto())
    assert_same(before, proto)
    return model


def node_of(model: Model, op: str) -> gs.Node:
    (node,) = model.nodes(op)
    return node


ONE = text("g (float[2] x) => (float[2] y) { t = Relu(x)  y = Neg(t) }")


def one() -> Model:
    proto = ModelProto()
    proto.CopyFrom(ONE)
    return from_proto(proto)


# -- rows 1 and 2: constants of types numpy lacks ---------------------------------------------

SMALL = {
    "INT4": (ml_dtypes.int4, [-8, -1, 7]),
    "UINT4": (ml_dtypes.uint4, [0, 9, 15]),
    "INT2": (ml_dtypes.int2, [-2, 0, 1]),
    "UINT2": (ml_dtypes.uint2, [0, 2, 3]),
    "FLOAT4E2M1": (ml_dtypes.float4_e2m1fn, [-6.0, 0.5, 3.0]),
    "FLOAT8E4M3FN": (ml_dtypes.float8_e4m3fn, [-448.0, 0.25, 1.5]),
    "FLOAT8E4M3FNUZ": (ml_dtypes.float8_e4m3fnuz, [-240.0, 0.25, 1.5]),
    "FLOAT8E5M2": (ml_dtypes.float8_e5m2, [-57344.0, 0.25, 1.5]),
    "FLOAT8E5M2FNUZ": (ml_dtypes.float8_e5m2fnuz, [-57344.0, 0.25, 1.5]),
    "FLOAT8E8M0": (ml_dtypes.float8_e8m0fnu, [0.5, 1.0, 4.0]),
    "BFLOAT16": (ml_dtypes.bfloat16, [-(2.0**100), 0.25, 1.5]),
    "FLOAT16": (np.float16, [-65504.0, 0.25, 1.5]),
}


@pytest.mark.parametrize("kind", SMALL)
def test_row_01_new_constant_of_small_type(kind: str) -> None:
    dtype, numbers = SMALL[kind]
    model = one()
    value = np.array(numbers, np.float32).astype(dtype)
    set_input(node_of(model, "Relu"), 0, constant(model, "c", value))
    (tensor,) = model.to_proto().graph.initializer
    assert tensor.data_type == TensorProto.DataType.Value(kind)
    assert numpy_helper.to_array(tensor).astype(np.float32).tolist() == numbers


@pytest.mark.parametrize("kind", SMALL)
def test_row_01_stored_constant_of_small_type_is_kept_and_read(kind: str) -> None:
    dtype, numbers = SMALL[kind]
    value = np.array(numbers, np.float32).astype(dtype)
    proto = make(
        [helper.make_node("Identity", ["c"], ["y"])],
        [],
        [info("y", [3], TensorProto.DataType.Value(kind))],
        initializer=[numpy_helper.from_array(value, "c")],
    )
    read = array(node_of(kept(proto), "Identity").inputs[0])
    assert read is not None
    assert read.dtype == dtype
    assert read.astype(np.float32).tolist() == numbers


def test_row_01_int4_weight_runs_in_onnxruntime() -> None:
    proto = make(
        [
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"]),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        opset=21,
        ir_version=10,
        initializer=[
            numpy_helper.from_array(np.zeros((2, 2), ml_dtypes.int4), "q"),
            numpy_helper.from_array(np.float32(0.5), "s"),
        ],
    )
    model = from_proto(proto)
    weight = np.array([[-8, 7], [3, -1]], np.float32)
    codes = constant(model, "codes", weight.astype(ml_dtypes.int4))
    set_input(node_of(model, "DequantizeLinear"), 0, codes)
    (y,) = run(model.to_proto(), x=np.array([2, 4], np.float32))
    assert y.tolist() == (np.array([2, 4]) @ weight * 0.5).tolist()


def test_row_02_float8_e4m3fnuz_keeps_type_and_values() -> None:
    model = one()
    numbers = [0.5, -2.0, 240.0]
    value = np.array(numbers, np.float32).astype(ml_dtypes.float8_e4m3fnuz)
    set_input(node_of(model, "Relu"), 0, constant(model, "c", value))
    (tensor,) = model.to_proto().graph.initializer
    assert tensor.data_type == TensorProto.FLOAT8E4M3FNUZ
    assert numpy_helper.to_array(tensor).astype(np.float32).tolist() == numbers


# -- row 3: what is said about the model ------------------------------------------------------


def add_props(message: Any, *pairs: tuple[str, str]) -> None:
    for key, value in pairs:
        message.metadata_props.add(key=key, value=value)


def documented() -> ModelProto:
    proto = text(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float s = {0.5}> "
        "{ t = Mul(x, w)  y = Neg(t) }"
    )
    proto.producer_name, proto.producer_version = "maker", "1.2"
    proto.domain, proto.model_version, proto.doc_string = "org.example", 7, "a model"
    add_props(proto, ("author", "me"), ("empty", ""))
    proto.graph.doc_string = "a graph"
    add_props(proto.graph, ("part", "main"))
    node = proto.graph.node[0]
    node.name, node.doc_string = "mul", "a node"
    add_props(node, ("scope", "layer1"))
    proto.graph.initializer[0].doc_string = "a weight"
    add_props(proto.graph.initializer[0], ("role", "weight"))
    proto.graph.input[0].doc_string = "an input"
    proto.graph.output[0].doc_string = "an output"
    proto.graph.value_info.append(info("t"))
    proto.graph.value_info[0].doc_string = "in between"
    add_props(proto.graph.value_info[0], ("k", "v"))
    note = proto.graph.quantization_annotation.add(tensor_name="t")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    return proto


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


def with_overloads() -> ModelProto:
    proto = text("g (float[2] x) => (float[2] y) { t = com.x.f (x)  y = com.x.f (t) }", 17, 10)
    for node, overload in zip(proto.graph.node, ("a", "b"), strict=True):
        node.overload = overload
        op = "Neg" if overload == "a" else "Abs"
        body = [helper.make_node(op, ["i"], ["o"])]
        function = helper.make_function(
            "com.x", "f", ["i"], ["o"], body, [helper.make_opsetid("", 17)], overload=overload
        )
        function.doc_string = f"overload {overload}"
        add_props(function, ("k", overload))
        proto.functions.append(function)
    return proto


def test_row_04_functions_and_overloads_are_kept() -> None:
    model = kept(with_overloads())
    assert [f.overload for f in model.functions] == ["a", "b"]
    (y,) = run(model.to_proto(), x=np.float32([-1, 2]))
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
    before = run(model.to_proto(), x=np.float32([3, 4]))
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
    assert (run(proto, x=np.float32([3, 4]))[0] - before[0]).tolist() == [9, 18]


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


# -- rows 11 to 15: editing -------------------------------------------------------------------


def chain(length: int) -> list[NodeProto]:
    names = ["x", *(f"t{i}" for i in range(length - 1)), "y"]
    return [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]


def test_row_11_reversed_chain_of_thousands_is_sorted() -> None:
    length = 3000
    model = from_proto(make(chain(length)[::-1]))
    proto = model.to_proto()
    assert is_sorted(proto.graph)
    assert [n.output[0] for n in proto.graph.node] == [n.output[0] for n in chain(length)]
    assert run(proto, x=np.float32([1, 2]))[0].tolist() == [1, 2]


def test_row_11_sorting_leaves_a_sorted_graph_alone_and_is_linear() -> None:
    rng = random.Random(0)
    times = []
    for length in (2000, 8000):
        nodes = chain(length)
        assert [n.outputs[0].name for n in from_proto(make(nodes)).nodes()] == [
            n.output[0] for n in nodes
        ]
        rng.shuffle(nodes)
        model = from_proto(make(nodes))
        start = time.process_time()
        model.check()
        times.append(time.process_time() - start)
    assert times[1] < 12 * max(times[0], 0.002)  # 4 if linear, 16 if quadratic


def twins() -> ModelProto:
    """Two unnamed nodes that graphsurgeon takes for equal."""
    return text(
        "g (float[2] x) => (float[2] y, float[2] z) "
        "{ a = Relu(x)  b = Relu(x)  y = Neg(a)  z = Neg(b) }"
    )


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


def test_row_13_detaching_many_readers_of_one_tensor_is_quick_in_any_order() -> None:
    count = 2000
    nodes = [helper.make_node("Add", ["x", "zero"], [f"y{i}"]) for i in range(count)]
    zero = [numpy_helper.from_array(np.float32([0, 0]), "zero")]
    outputs = [info(f"y{i}") for i in range(count)]
    for order in ("first to last", "last to first", "random"):
        model = from_proto(make(nodes, outputs=outputs, initializer=zero))
        victims = model.nodes("Add")
        if order == "last to first":
            victims.reverse()
        elif order == "random":
            random.Random(0).shuffle(victims)
        start = time.process_time()
        for node in victims:
            detach(node)
        assert time.process_time() - start < 1.0, order
        assert not model.graph.inputs[0].outputs
        assert not model.graph.record.constants[0].outputs


def test_row_14_inputs_are_set_by_number_also_behind_the_end() -> None:
    model = from_proto(text("g (float[2] x, float lo, float hi) => (float[2] y) { y = Clip(x) }"))
    clip = node_of(model, "Clip")
    set_input(clip, 2, model.graph.inputs[2])
    assert list(model.to_proto().graph.node[0].input) == ["x", "", "hi"]
    set_input(clip, 1, model.graph.inputs[1])
    assert list(model.to_proto().graph.node[0].input) == ["x", "lo", "hi"]


def test_row_15_tensors_are_told_apart_by_identity() -> None:
    model = from_proto(twins())
    with pytest.raises(TypeError, match="unhashable"):
        hash(model.nodes("Relu")[0])
    assert model.is_output(model.graph.outputs[0])
    impostor = gs.Variable(model.graph.outputs[0].name)
    assert impostor == model.graph.outputs[0]  # by name
    assert not model.is_output(impostor)


def test_row_16_export_leaves_source_and_model_alone() -> None:
    proto = documented()
    before = proto.SerializeToString(deterministic=True)
    model = from_proto(proto)
    new_node(
        model,
        "com.y::Op",
        [model.graph.inputs[0]],
        [variable(model, "v", like=None)],
        name="n",
    )
    constant(model, "w", np.float32(1))
    first = model.to_proto().SerializeToString(deterministic=True)
    assert model.to_proto().SerializeToString(deterministic=True) == first
    assert proto.SerializeToString(deterministic=True) == before
    assert model.opsets == {"": 17, "com.x": 1}


def test_row_17_clone_equals_the_original() -> None:
    for proto in (documented(), with_overloads(), outer_uses()):
        model = from_proto(proto)
        assert_same(model.to_proto(), model.clone().to_proto())


def test_row_17_clone_is_independent() -> None:
    proto = documented()
    proto.graph.node.append(
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.float32([1])))
    )
    before = ModelProto()
    before.CopyFrom(proto)
    model = from_proto(proto)
    twin = model.clone()
    add_props(twin.header, ("new", "entry"))
    twin.graph.record.header.quantization_annotation.add(tensor_name="x")
    twin.graph.inputs[0].shape[0] = 5
    twin.nodes("Constant")[0].attrs["value"].values = np.float32([2])
    mul = node_of(twin, "Mul")
    set_input(mul, 1, constant(twin, "w", np.float32([3, 4])))
    mul.attrs["new"] = 1
    replace(node_of(twin, "Neg"), mul.outputs[0], twin)
    twin.graph.outputs[0].name = "renamed"
    twin.opsets["com.z"] = 1
    twin.functions.append(onnx.FunctionProto(name="f"))
    twin.sweep()
    assert_same(before, model.to_proto())
    # and the other way round
    again = twin.to_proto().SerializeToString(deterministic=True)
    model.graph.outputs[0].name = "also renamed"
    node_of(model, "Mul").attrs["x"] = 1
    assert twin.to_proto().SerializeToString(deterministic=True) == again


def test_row_18_two_tensors_of_one_name_are_refused() -> None:
    model = one()
    neg = node_of(model, "Neg")
    replacement = gs.Variable("t")  # as graphsurgeon lets one do
    new_node(model, "Abs", [model.graph.inputs[0]], [replacement], name="abs")
    set_input(neg, 0, replacement)
    with pytest.raises(InvalidModelError, match="'t' is made by two nodes"):
        model.check()


# -- the other traps --------------------------------------------------------------------------


def test_trap_inserting_many_nodes_is_linear() -> None:
    times = []
    for count in (500, 4000):
        model = from_proto(make(chain(count)))
        start = time.process_time()
        for node in model.nodes("Neg"):
            made = variable(model, "q", like=node.inputs[0])
            new_node(model, "Identity", [node.inputs[0]], [made], name="q")
            set_input(node, 0, made)
        times.append(time.process_time() - start)
        assert len(model.to_proto().graph.node) == 2 * count
    assert times[1] < 32 * max(times[0], 0.002)  # 8 if linear, 64 if quadratic


def test_trap_scalar_constant_stays_a_scalar() -> None:
    model = one()
    set_input(node_of(model, "Relu"), 0, constant(model, "s", np.float32(0.5)))
    assert list(model.to_proto().graph.initializer[0].dims) == []


def test_trap_value_float_is_float32() -> None:
    model = from_proto(text("g () => (float y) { y = Constant<value_float = 0.1>() }"))
    value = array(model.graph.outputs[0])
    assert value is not None
    assert value.dtype == np.float32


@pytest.mark.parametrize("layout", ["rows", "columns", "strided"])
def test_trap_new_constant_in_any_memory_layout(layout: str) -> None:
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    value = {"rows": base, "columns": np.asfortranarray(base), "strided": base[:, ::-2]}[layout]
    model = one()
    set_input(node_of(model, "Relu"), 0, constant(model, "c", value))
    stored = numpy_helper.to_array(model.to_proto().graph.initializer[0])
    assert stored.tolist() == value.tolist()


def test_trap_string_constants() -> None:
    for value in (np.array(["a", "ü"], object), np.array(["a", "ü"])):
        model = one()
        set_input(node_of(model, "Relu"), 0, constant(model, "c", value))
        stored = model.to_proto().graph.initializer[0]
        assert stored.data_type == TensorProto.STRING
        assert [s.decode() for s in stored.string_data] == ["a", "ü"]


# -- subgraphs --------------------------------------------------------------------------------


def outer_uses() -> ModelProto:
    """If whose branches read an outer tensor, an outer initializer and an outer input."""
    return text(
        """g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            t = Relu(x)
            y = If (c) <
                then_branch = then () => (float[2] a) { a = Mul(t, w) },
                else_branch = other () => (float[2] b)
                    { k = Constant<value = float[2] {7, 8}>()  s = Add(x, k)  b = Add(s, w) }
            >
        }"""
    )


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
    assert run(proto, c=np.array(True), x=np.float32([1, 2]))[0].tolist() == [10, 40]
    assert run(proto, c=np.array(False), x=np.float32([1, 2]))[0].tolist() == [9, 12]


def test_body_may_use_what_an_unsorted_graph_makes_later() -> None:
    proto = outer_uses()
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    written = from_proto(proto).to_proto()
    assert [n.op_type for n in written.graph.node] == ["Relu", "If"]
    assert run(written, c=np.array(True), x=np.float32([3, 4]))[0].tolist() == [3, 8]


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


# -- sweep ------------------------------------------------------------------------------------


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


# -- names ------------------------------------------------------------------------------------


def test_fresh_name_avoids_every_name() -> None:
    proto = outer_uses()
    proto.graph.value_info.append(info("nobody"))
    proto.graph.quantization_annotation.add(tensor_name="annotated")
    model = from_proto(proto)
    for taken in ("c", "x", "y", "w", "t", "a", "b", "k", "s", "nobody", "annotated"):
        assert model.fresh_name(taken) == f"{taken}_1"
        assert model.fresh_name(taken) == f"{taken}_2"
    assert model.fresh_name("free") == "free"
    assert model.fresh_name("free") == "free_1"
    assert model.fresh_name("") not in ("", "c")


def test_fresh_name_does_not_trip_over_numbered_names() -> None:
    model = from_proto(
        text("g (float[2] b) => (float[2] b_1) { b0 = Neg(b)  b_2 = Neg(b0)  b_1 = Neg(b_2) }")
    )
    assert [model.fresh_name("b") for _ in range(2)] == ["b_3", "b_4"]
    twin = model.clone()
    assert twin.fresh_name("b") == model.fresh_name("b") == "b_5"


def test_fresh_name_is_linear() -> None:
    model = one()
    start = time.process_time()
    names = {model.fresh_name("n") for _ in range(20_000)}
    assert len(names) == 20_000
    assert time.process_time() - start < 2


# -- domains and versions ---------------------------------------------------------------------


def test_domain_of_a_new_node_is_imported() -> None:
    model = one()
    new_node(
        model, "com.y::Op", [model.graph.inputs[0]], [variable(model, "v", like=None)], name="n"
    )
    imports = {e.domain: e.version for e in model.to_proto().opset_import}
    assert imports == {"": 17, "com.x": 1, "com.y": 1}


def test_foreign_file_without_import_of_its_domain_is_left_so() -> None:
    kept(make([helper.make_node("Op", ["x"], ["y"], domain="org.example")]))


def test_default_domain_spelled_out() -> None:
    proto = make([helper.make_node("Neg", ["x"], ["y"], domain="ai.onnx")])
    proto.opset_import[0].domain = "ai.onnx"
    model = kept(proto)
    assert model.opset == 17
    assert [n.op for n in model.nodes("Neg")] == ["Neg"]


def test_versions_and_imports_are_kept() -> None:
    proto = make(chain(1), opset=9, ir_version=4)
    proto.opset_import.extend([helper.make_opsetid("com.microsoft", 1)])
    model = kept(proto)
    assert (model.opset, model.ir_version) == (9, 4)


def test_new_model_can_be_built_from_nothing() -> None:
    model = new_model("made")
    x = gs.Variable("x", np.float32, [2])
    y = gs.Variable("y", np.float32, [2])
    model.graph.inputs.append(x)
    model.graph.outputs.append(y)
    model.refresh()
    new_node(model, "Add", [x, constant(model, "one", np.float32(1))], [y], name="add")
    proto = model.to_proto()
    onnx.checker.check_model(proto, full_check=True)
    assert (proto.ir_version, proto.opset_import[0].version) == (10, 21)
    assert run(proto, x=np.float32([1, 2]))[0].tolist() == [2, 3]


def test_changed_type_and_shape_are_written() -> None:
    model = one()
    tensor = model.graph.outputs[0]
    tensor.dtype, tensor.shape = np.dtype(np.float16), ["N", 3]
    written = model.to_proto().graph.output[0].type.tensor_type
    assert written.elem_type == TensorProto.FLOAT16
    assert [d.dim_param or d.dim_value for d in written.shape.dim] == ["N", 3]


def test_attribute_set_to_nan_is_written() -> None:
    model = from_proto(text("g (float[2] x) => (float[2] y) { y = Elu<alpha = 0.5>(x) }"))
    node_of(model, "Elu").attrs["alpha"] = float("nan")
    assert np.isnan(model.to_proto().graph.node[0].attribute[0].f)


# -- the structural check ---------------------------------------------------------------------

BROKEN = {
    "duplicate output": (chain(1) * 2, "'y' is made by two nodes"),
    "cycle": (
        [
            helper.make_node("Add", ["x", "b"], ["a"]),
            helper.make_node("Add", ["a", "x"], ["b"]),
            helper.make_node("Neg", ["b"], ["y"]),
        ],
        "depends on its own output",
    ),
    "self cycle": ([helper.make_node("Add", ["x", "y"], ["y"], name="n")], "'n' .*its own output"),
    "dangling input": ([helper.make_node("Add", ["x", "q"], ["y"])], "reads 'q', which nothing"),
    "missing output": ([helper.make_node("Neg", ["x"], ["z"])], "makes the graph output 'y'"),
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
