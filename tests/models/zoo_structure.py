"""Float models whose difficulty is the file: names, scopes, constants, signature, metadata."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.models.zoo_build import Build, model
from tests.models.zoo_tags import BATCH_NORM, FLOAT, SUBGRAPHS


@model(FLOAT)
def constants_of_each_kind() -> onnx.ModelProto:
    """Constant nodes with value, value_float, value_floats, value_int, value_ints, sparse_value."""
    b = Build()
    x = b.op("Mul", b.input("x", [2, 3]), b.op("Constant", value_float=0.5))
    x = b.op("Add", x, b.op("Constant", value_floats=[1.0, 2.0, 3.0]))
    x = b.op("Gather", x, b.op("Constant", value_int=1), axis=1)
    x = b.op("Reshape", x, b.op("Constant", value_ints=[1, 2]))
    x = b.op("Add", x, b.constant(b.random(1, 2)))
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [0.25])
    place = helper.make_tensor("place", TensorProto.INT64, [1], [3])
    sparse = helper.make_sparse_tensor(values, place, [2, 2])
    return b.model(b.op("MatMul", x, b.op("Constant", sparse_value=sparse)))


@model(FLOAT, BATCH_NORM, SUBGRAPHS)
def if_outer_weights() -> onnx.ModelProto:
    """If: one branch uses outer weights, the other has its own Conv + BN; inner names repeat."""
    b = Build()
    flag, x = b.input("flag", [], TensorProto.BOOL), b.input("x", [1, 3, 6, 6])
    weight, bias = b.weight(3, 3, 3, 3, name="outer_weight"), b.init(b.random(3), "outer_bias")
    x = b.bn(b.op("Conv", x, weight, bias, pads=[1] * 4), 3)
    then, other = b.body(), b.body()
    inner = then.op("Conv", x, weight, bias, pads=[1] * 4, out="inner")
    then.typed_output(then.op("Relu", inner), [1, 3, 6, 6])
    inner = other.conv(x, 3, 3, out="inner")
    other.typed_output(other.bn(inner, 3), [1, 3, 6, 6])
    y = b.op("If", flag, then_branch=then.graph("then"), else_branch=other.graph("else"))
    return b.model(b.op("Relu", y))


@model(FLOAT, BATCH_NORM, SUBGRAPHS)
def nested_if() -> onnx.ModelProto:
    """If in If: a BN two scopes below its Conv, and a branch that returns an outer value."""
    b = Build()
    flag, x = b.input("flag", [], TensorProto.BOOL), b.input("x", [1, 3, 6, 6])
    conv = b.conv(x, 3, 3)
    outer, deep, plain, other = b.body(), b.body(), b.body(), b.body()
    deep.typed_output(deep.bn(conv, 3), [1, 3, 6, 6])
    plain.typed_output(plain.op("Identity", conv), [1, 3, 6, 6])
    branches = {"then_branch": deep.graph("deep"), "else_branch": plain.graph("plain")}
    outer.typed_output(outer.op("If", outer.op("Not", flag), **branches), [1, 3, 6, 6])
    other.typed_output(other.op("Neg", x), [1, 3, 6, 6])
    branches = {"then_branch": other.graph("other"), "else_branch": outer.graph("outer")}
    return b.model(b.op("If", flag, **branches))


@model(FLOAT, SUBGRAPHS)
def loop_outer_weight() -> onnx.ModelProto:
    """Loop whose body applies an outer Gemm weight to the carried state and scans it out."""
    b = Build()
    x, weight = b.input("x", [2, 4]), b.weight(4, 4, name="outer_weight")
    body = b.body()
    body.input("step", [], TensorProto.INT64)
    going = body.input("going", [], TensorProto.BOOL)
    state = body.input("state", [2, 4])
    new = body.op("Tanh", body.op("Gemm", state, weight, body.init(body.random(4))))
    body.typed_output(body.op("Identity", going), [], TensorProto.BOOL)
    body.typed_output(body.op("Identity", new), [2, 4])
    body.typed_output(new, [2, 4])
    args = b.init(np.int64(3)), b.init(np.bool_(True)), b.op("MatMul", x, weight)
    b.ops("Loop", *args, outs=["last", "trace"], body=body.graph("body"))
    b.typed_output("last", [2, 4])
    b.typed_output("trace", [None, 2, 4])
    return b.model()


@model(FLOAT, BATCH_NORM)
def multi_output() -> onnx.ModelProto:
    """Outputs in the middle, at the end and read further on, in an order unlike the nodes'."""
    b = Build()
    x = b.bn(b.conv(b.input("x", [1, 3, 6, 6]), 3, 4), 4, out="normed")
    y = b.op("Relu", x, out="activated")
    z = b.op("Identity", b.conv(y, 4, 2), out="tail")
    return b.model(z, x, y)


@model(FLOAT)
def unused_input() -> onnx.ModelProto:
    """An input nobody reads, between two that are read; a node whose output nobody reads."""
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        unused_input (float[2,3] a, int64[4] ignored, float[2,3] c) => (float[2,3] y) {
            y = Add(a, c)
            dead = Mul(a, c)
        }""")


@model(FLOAT)
def unused_initializer() -> onnx.ModelProto:
    """Initializers nobody reads, one equal to a used one."""
    b = Build()
    weight = b.weight_values(4, 3, 3, 3)
    b.init(weight.copy(), "twin")
    b.init(b.random(2), "stray")
    return b.model(b.conv(b.input("x", [1, 3, 6, 6]), 3, 4, weight=b.init(weight, "used")))


@model(FLOAT)
def output_is_input() -> onnx.ModelProto:
    """A graph output that is a graph input, beside a computed one."""
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        output_is_input (float[2,3] x) => (float[2,3] x, float[2,3] y) { y = Relu(x) }""")


@model(FLOAT)
def output_is_input_identity() -> onnx.ModelProto:
    """A graph output that is a graph input behind Identity: removing it would rename the output."""
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        output_is_input_identity (float[2,3] x) => (float[2,3] same, float[2,3] y)
        { same = Identity(x) y = Relu(same) }""")


@model(FLOAT)
def output_is_initializer() -> onnx.ModelProto:
    """Graph outputs that are an initializer behind Identity and a Constant node."""
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        output_is_initializer (float[2] x) => (float[2] y, float[2] w_out, float[2] c)
        <float[2] w = {1.5, -2}>
        { c = Constant <value_floats = [0.5, 4.0]> ()
          w_out = Identity(w) t = Mul(x, w) y = Add(t, c) }""")


@model(FLOAT)
def identity_chain() -> onnx.ModelProto:
    """Identity runs: inside, before the output, and one value copied to two outputs."""
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        identity_chain (float[2,3] x) => (float[2,3] y, float[2,3] z, float[2,3] z_copy)
        { a = Identity(x) b = Identity(a) c = Relu(b) d = Identity(c) y = Identity(d)
          z = Neg(d) z_copy = Identity(z) }""")


def overridable(ir: int, opset: int) -> onnx.ModelProto:
    b = Build(opset, ir=ir)
    x = b.conv(b.input("x", [1, 3, 6, 6]), 3, 4, weight=b.weight(4, 3, 3, 3, name="w"))
    y = b.bn(x, 4)
    shapes = {tensor.name: tensor for tensor in b.initializers}
    for name in shapes if ir < 4 else ["w"]:
        b.input(name, shapes[name].dims, shapes[name].data_type)
    return b.model(y)


@model(FLOAT, BATCH_NORM)
def initializer_is_input() -> onnx.ModelProto:
    """A weight that is both initializer and graph input: a default the caller may override."""
    return overridable(8, 17)


@model(FLOAT, BATCH_NORM)
def initializer_is_input_ir3() -> onnx.ModelProto:
    """IR 3, where every initializer must be listed as an input."""
    return overridable(3, 8)


@model(FLOAT, BATCH_NORM)
def name_clashes() -> onnx.ModelProto:
    """Names that generated names tend to hit: b, b0, b_0, b_1, w.bias, w_quantized, w_scale."""
    b = Build()
    x = b.input("b_1", [1, 3, 6, 6])
    first = b.init(b.random(4), "b"), b.init(b.random(4), "b0")
    x = b.op("Conv", x, b.weight(4, 3, 1, 1, name="w"), first[0], out="w_scale")
    x = b.op("BatchNormalization", x, *first, b.init(b.random(4), "b_0"),
             b.init(np.ones(4, np.float32), "w.bias"), out="w_quantized")  # fmt: skip
    x = b.op("Conv", x, b.weight(4, 4, 1, 1, name="w_zero_point"), first[1], out="b1")
    return b.model(b.op("Relu", x, out="b_2"))


@model(FLOAT, BATCH_NORM)
def odd_names() -> onnx.ModelProto:
    """Non-ASCII, JSON-like, quoted, spaced, path-like and very long names of tensors and nodes."""
    b = Build()
    weight = b.weight(4, 3, 3, 3, name="层/权重")
    x = b.op("Conv", b.input('{"a":1}', [1, 3, 6, 6]), weight, out='a "quoted" name')
    x = b.bn(x, 4, out="../up\\and\tdown")
    x = b.op("Conv", x, b.weight(2, 4, 1, 1, name="[0]"), b.init(b.random(2), "null"), out="1.5e3")
    proto = b.model(b.op("Relu", x, out="выход:0 " + "x" * 300))
    for node, name in zip(proto.graph.node, ("слой/Conv", "{}", "it's", "a,b;c=d"), strict=True):
        node.name = name
    return proto


@model(FLOAT)
def empty_optional_inputs() -> onnx.ModelProto:
    """Omitted inputs in the middle: Clip without min, Resize without roi and scales."""
    b = Build()
    x = b.op("Clip", b.conv(b.input("x", [1, 3, 4, 4]), 3, 2), "", b.init(np.float32(1)))
    x = b.op("Clip", x, b.init(np.float32(-1)), "")
    return b.model(b.op("Resize", x, "", "", b.ints(1, 2, 8, 8), mode="nearest"))


@model(FLOAT)
def zero_pad() -> onnx.ModelProto:
    """Pad by nothing (initializer, Constant, to the output) beside a Pad that does something."""
    b = Build()
    x = b.op("Pad", b.input("x", [1, 3, 4, 4]), b.ints(*[0] * 8))
    x = b.op("Pad", b.conv(x, 3, 4), b.constant(np.zeros(8, np.int64)), b.init(np.float32(7)))
    x = b.op("Pad", x, b.ints(0, 0, 1, 1, 0, 0, 1, 1), b.init(np.float32(0)))
    return b.model(b.op("Pad", b.conv(x, 4, 2), b.ints(*[0] * 8), mode="reflect"))


@model(FLOAT, BATCH_NORM)
def unnamed_nodes() -> onnx.ModelProto:
    """Nodes without names, some of them equal but for their output."""
    b = Build()
    x = b.input("x", [1, 3, 6, 6])
    first, second = b.op("Relu", x), b.op("Relu", x)
    proto = b.model(b.bn(b.conv(b.op("Add", first, second), 3, 4), 4))
    for node in proto.graph.node:
        node.name = ""
    return proto


@model(FLOAT, BATCH_NORM)
def metadata_everywhere() -> onnx.ModelProto:
    """metadata_props and doc strings on all levels, value_info, model header, annotation."""
    b = Build(21)
    x = b.op("Relu", b.bn(b.conv(b.input("x", ["N", 3, 6, 6]), 3, 4), 4), out="y")
    proto = onnx.shape_inference.infer_shapes(b.model(x))
    proto.domain, proto.model_version, proto.doc_string = "org.example", 7, "the model"
    proto.producer_name, proto.producer_version = "trainer", "1.2.3"
    proto.graph.doc_string = "the graph"
    helper.set_model_props(proto, {"author": "Zoë", "classes": '["cat", "dog"]'})
    graph = proto.graph
    for owner in (graph, *graph.node, graph.input[0], graph.output[0], graph.initializer[0]):
        owner.metadata_props.add(key="scope", value=f"net.{owner.name}")
        owner.doc_string = f"about {owner.name}"
    note = graph.quantization_annotation.add(tensor_name="y")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value=graph.initializer[0].name)
    return proto


@model(FLOAT, BATCH_NORM)
def local_function() -> onnx.ModelProto:
    """A model-local function of a private domain between standard nodes, used twice."""
    b = Build()
    nodes = [
        helper.make_node("Constant", [], ["slope"], value_float=0.1),
        helper.make_node("Mul", ["v", "slope"], ["low"]),
        helper.make_node("Max", ["v", "low"], ["w"]),
    ]
    opsets = [helper.make_opsetid("", 17)]
    b.functions.append(helper.make_function("zoo.local", "Leaky", ["v"], ["w"], nodes, opsets))
    x = b.bn(b.conv(b.input("x", [1, 3, 6, 6]), 3, 4), 4)
    (x,) = b.ops("Leaky", x, outs=["leaky"], domain="zoo.local")
    (y,) = b.ops("Leaky", b.conv(x, 4, 2), outs=["y"], domain="zoo.local")
    return b.model(y)
