"""The verbs of passes work by identity, keep public names, and leave every link right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxq import edit
from onnxq.edit import constant, insert, new_node, producer, replace, set_input, users
from onnxq.graph import Model, constants, from_proto
from onnxq.graph.constants import array
from onnxq.quant.qparams import GRAPH_OUTPUT
from tests.checks.work import assert_linear
from tests.models.build import parse, run, tensor

X = np.float32([[-1, 2], [3, -4]])


def assert_linked(model: Model) -> None:
    """Every edge is known at both of its ends, as often as it exists."""
    nodes = model.nodes()
    reads: Counter[tuple[int, int]] = Counter()
    makes: Counter[tuple[int, int]] = Counter()
    seen: dict[int, Any] = {}
    for node in nodes:
        for t in node.inputs:
            reads[id(t), id(node)] += 1
            seen[id(t)] = t
        for t in node.outputs:
            makes[id(t), id(node)] += 1
            seen[id(t)] = t
    assert reads == Counter((i, id(n)) for i, t in seen.items() for n in t.outputs)
    assert makes == Counter((i, id(n)) for i, t in seen.items() for n in t.inputs)
    model.check()


def ops(model: Model) -> list[str]:
    return [n.op_type for n in model.to_proto().graph.node]


CHAIN = "g (float[2,2] x) => (float[2,2] y) { a = Relu(x)  b = Neg(a)  y = Exp(b) }"


# -- looking ------------------------------------------------------------------------------------


def test_producer_by_operator_and_domain() -> None:
    model = parse("g (float[2,2] x) => (float[2,2] y) { a = com.x.Relu (x)  y = Neg(a) }")
    a, y = tensor(model, "a"), tensor(model, "y")
    assert producer(y, "Neg").op == "Neg"  # type: ignore[union-attr]
    assert producer(y, "Relu", "Neg") is producer(y)
    assert producer(y, "Relu") is None
    assert producer(a, "Relu") is None
    assert producer(a, "com.x::Relu") is producer(a)
    assert producer(tensor(model, "x")) is None


def test_users_and_readers_count_every_use() -> None:
    model = parse("g (float[2,2] x) => (float[2,2] y) { a = Mul(x, x)  y = Add(a, x) }")
    x = tensor(model, "x")
    assert [n.op for n in edit.readers(x)] == ["Mul", "Mul", "Add"]
    assert [(n.op, i) for n, i in users(x)] == [("Mul", 0), ("Mul", 1), ("Add", 1)]
    mul = producer(tensor(model, "a"))
    assert mul is not None
    assert not edit.only_reader(x, mul, model)
    assert edit.only_reader(tensor(model, "a"), model.nodes("Add")[0], model)


def test_graph_output_is_a_use() -> None:
    model = parse("g (float[2,2] x) => (float[2,2] a, float[2,2] y) { a = Relu(x)  y = Neg(a) }")
    assert not edit.only_reader(tensor(model, "a"), model.nodes("Neg")[0], model)


def test_inputs_of_fills_what_is_left_out() -> None:
    model = parse("g (float[2,2] x, float hi) => (float[2,2] y) { y = Clip(x, , hi) }")
    found = edit.inputs_of(model.nodes("Clip")[0], 4)
    assert [None if t is None else t.name for t in found] == ["x", None, "hi", None]


def test_read_by_names_a_use_by_what_it_makes() -> None:
    model = parse(CHAIN)
    assert edit.read_by(model.nodes("Neg")[0], 0) == edit.Reader("b", 0)


# -- array --------------------------------------------------------------------------------------

SEEN_THROUGH = {
    "initializer": "",
    "Identity": "v = Identity(w)",
    "Transpose": "v = Transpose(w)",
    "Transpose perm": "v = Transpose<perm=[1,0]>(w)",
    "Reshape": "s = Constant<value_ints=[-1,2]>()  v = Reshape(w, s)",
    "Reshape zero": "s = Constant<value_ints=[0,-1,1]>()  v = Reshape(w, s)",
    "Unsqueeze": "s = Constant<value_ints=[0,-1]>()  v = Unsqueeze(w, s)",
    "Squeeze": "s = Constant<value_ints=[0]>()  u = Unsqueeze(w, s)  v = Squeeze(u, s)",
    "Squeeze all": "s = Constant<value_ints=[0]>()  u = Unsqueeze(w, s)  v = Squeeze(u)",
    "Cast": "v = Cast<to=1>(w)",
    "chain": "a = Identity(w)  b = Transpose(a)  v = Cast<to=1>(b)",
}


@pytest.mark.parametrize("what", SEEN_THROUGH)
def test_array_sees_what_onnxruntime_computes(what: str) -> None:
    body = SEEN_THROUGH[what] or "v = Identity(w)"
    model = parse(f"g () => (float[a] y) <float[2,3] w = {{1,2,3,4,5,6}}> {{ {body}  y = Neg(v) }}")
    found = array(tensor(model, "v" if SEEN_THROUGH[what] else "w"))
    assert found is not None
    (y,) = run(model)
    assert np.array_equal(found, -y)
    with pytest.raises(ValueError, match="read-only"):
        found[...] = 1


def test_array_before_opset_13_takes_axes_from_the_attribute() -> None:
    body = "{ u = Unsqueeze<axes=[0,3]>(w)  v = Squeeze<axes=[3]>(u)  y = Neg(v) }"
    model = parse(f"g () => (float[a] y) <float[2,3] w = {{1,2,3,4,5,6}}> {body}", 11, 6)
    found = array(tensor(model, "v"))
    assert found is not None
    assert found.shape == (1, 2, 3)


@pytest.mark.parametrize(
    "body",
    [
        "v = Identity(x)",
        "v = Relu(w)",
        "v = com.x.Identity (w)",
        "s = Shape(x)  v = Reshape(w, s)",
        "s = Shape(x)  v = Squeeze(w, s)",
        "v = Cast<to=8>(w)",  # numbers to text
    ],
)
def test_array_is_none_for_what_is_not_known(body: str) -> None:
    model = parse(
        f"g (float[2,2] x) => (float[a] y) <float[2,2] w = {{1,2,3,4}}> {{ {body}  y = Neg(v) }}"
    )
    assert array(tensor(model, "v")) is None
    assert not constants.is_constant(tensor(model, "v"))


@pytest.mark.parametrize(
    ("numbers", "to"),
    [
        ([1.0, np.nan], TensorProto.INT32),
        ([1.0, np.inf], TensorProto.INT8),
        ([300.0, 1.0], TensorProto.INT8),
        ([-1.0, 1.0], TensorProto.UINT8),
        ([1e6, 1.0], TensorProto.FLOAT16),
        ([1e6, 1.0], TensorProto.FLOAT8E4M3FN),
        ([9.0, 1.0], TensorProto.INT4),
    ],
)
def test_array_does_not_cast_what_the_type_cannot_hold(numbers: list[float], to: int) -> None:
    """Runtimes disagree there: wrap, saturate, or infinity."""
    model = parse(f"g () => (float[2] y) <float[2] w = {{0, 0}}> {{ y = Cast<to={to}>(w) }}")
    set_input(model.nodes("Cast")[0], 0, constant(model, "c", np.float32(numbers)))
    assert array(tensor(model, "y")) is None


@pytest.mark.parametrize(
    ("numbers", "to", "expected"),
    [
        ([1.9, -1.9], TensorProto.INT8, [1, -1]),
        ([0.0, np.nan], TensorProto.BOOL, [False, True]),
        ([np.inf, np.nan], TensorProto.FLOAT16, [np.inf, np.nan]),
        ([0.1, 2.0], TensorProto.DOUBLE, [float(np.float32(0.1)), 2.0]),
    ],
)
def test_array_casts_as_onnxruntime_does(numbers: list[float], to: int, expected: Any) -> None:
    model = parse(f"g () => (float[2] y) <float[2] w = {{0, 0}}> {{ y = Cast<to={to}>(w) }}")
    set_input(model.nodes("Cast")[0], 0, constant(model, "c", np.float32(numbers)))
    found = array(tensor(model, "y"))
    assert found is not None
    assert np.array_equal(found, np.array(expected), equal_nan=found.dtype.kind == "f")
    model.graph.outputs[0].dtype = found.dtype
    (y,) = run(model)
    assert np.array_equal(found, y, equal_nan=found.dtype.kind == "f")


def test_array_of_a_long_chain() -> None:
    steps = "".join(f"t{i + 1} = Identity(t{i}) " for i in range(3000))
    model = parse(f"g () => (float y) <float t0 = {{7}}> {{ {steps} y = Neg(t3000) }}")
    found = array(tensor(model, "t3000"))
    assert found is not None
    assert found.tolist() == 7


def test_scalar_and_is_constant() -> None:
    model = parse(
        "g (float x) => (float y) <float a = {2}, float[1,1] b = {3}, float[2] c = {1, 2}>"
        "{ p = Mul(a, b)  q = Mul(p, c)  y = Mul(q, x) }"
    )
    values = {n: constants.scalar(tensor(model, n)) for n in ("a", "b", "c", "x", "p")}
    assert values == {"a": 2, "b": 3, "c": None, "x": None, "p": None}
    assert constants.is_constant(tensor(model, "c"))
    assert not constants.is_constant(tensor(model, "x"))
    assert not constants.is_constant(None)
    assert not constants.is_constant(gs.Variable(""))


# -- making -------------------------------------------------------------------------------------


def test_new_constant_never_replaces_one_of_the_same_name() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    made = constant(model, "w", np.float32([5, 6]))
    assert made.name == "w_1"
    assert array(tensor(model, "w")).tolist() == [1, 2]  # type: ignore[union-attr]
    assert not model.to_proto().graph.initializer[1:]  # it is unused


def test_new_node_in_a_domain() -> None:
    model = parse(CHAIN)
    made = edit.variable(model, "a", like=tensor(model, "a"))
    node = new_node(model, "com.x::Op", [tensor(model, "a")], [made], name="op", attrs={"k": 2})
    assert (node.op, node.domain, node.attrs, made.name) == ("Op", "com.x", {"k": 2}, "a_1")
    assert_linked(model)


# -- changing -----------------------------------------------------------------------------------


def test_set_input_of_one_of_two_equal_uses() -> None:
    model = parse("g (float[2,2] x, float[2,2] z) => (float[2,2] y) { y = Sub(x, x) }")
    sub = model.nodes("Sub")[0]
    set_input(sub, 1, tensor_of_input(model, "z"))
    assert [t.name for t in sub.inputs] == ["x", "z"]
    assert_linked(model)
    set_input(sub, 1, sub.inputs[1])  # to itself: nothing happens
    assert_linked(model)


def tensor_of_input(model: Model, name: str) -> Any:
    return next(t for t in model.graph.inputs if t.name == name)


def test_set_inputs_at_once_equals_one_by_one() -> None:
    text = "g (float[2,2] x, float[2,2] z) => (float[2,2] y) { a = Sub(x, x)  y = Add(a, x) }"
    single, many = parse(text), parse(text)
    for model in (single, many):
        z = tensor_of_input(model, "z")
        sub, add = model.nodes()
        changes = [(sub, 0, z), (add, 1, z)]
        if model is many:
            edit.set_inputs(changes)
        else:
            for change in changes:
                set_input(*change)
        assert_linked(model)
    assert single.to_proto() == many.to_proto()


@pytest.mark.parametrize("order", [1, -1])
def test_remove_all_is_linear_in_readers_of_one_tensor(order: int) -> None:
    def prepare(count: int) -> Callable[[], object]:
        nodes = " ".join(f"y{i} = Add(x, z)" for i in range(count))
        outputs = ", ".join(f"float[2] y{i}" for i in range(count))
        model = parse(f"g (float[2] x) => ({outputs}) <float[2] z = {{0, 0}}> {{ {nodes} }}")
        victims = model.nodes("Add")[::order]
        zero = victims[0].inputs[1]

        def remove_half() -> None:
            edit.remove_all(victims[: count // 2])
            left = model.nodes("Add")
            assert len(left) == count - count // 2
            assert all(n is m for n, m in zip(zero.outputs, left, strict=True))

        return remove_half

    assert_linear(prepare, 100)


def test_replace_by_what_goes_in() -> None:
    model = parse(CHAIN)
    neg = model.nodes("Neg")[0]
    replace(neg, neg.inputs[0], model)
    assert ops(model) == ["Relu", "Exp"]
    assert_linked(model)


def test_replace_the_maker_of_an_output_keeps_the_name() -> None:
    model = parse(CHAIN)
    exp = model.nodes("Exp")[0]
    replace(exp, exp.inputs[0], model)
    proto = model.to_proto()
    assert [n.op_type for n in proto.graph.node] == ["Relu", "Neg"]
    assert proto.graph.node[1].output[0] == "y"
    assert_linked(model)


def test_replace_moves_other_readers_to_the_public_name() -> None:
    model = parse(
        "g (float[2,2] x) => (float[2,2] y, float[2,2] z) "
        "{ a = Relu(x)  y = Identity(a)  z = Neg(a) }"
    )
    before = run(model, X)
    node = model.nodes("Identity")[0]
    replace(node, node.inputs[0], model)
    assert ops(model) == ["Relu", "Neg"]
    assert all(map(np.array_equal, before, run(model, X)))
    assert_linked(model)


@pytest.mark.parametrize("source", ["input", "constant", "output"])
def test_replace_by_a_tensor_with_its_own_name_leaves_an_identity(source: str) -> None:
    model = parse(
        "g (float[2,2] x) => (float[2,2] a, float[2,2] y, float[2,2] z) "
        "{ a = Relu(x)  y = Neg(a)  z = Abs(y) }"
    )
    neg = model.nodes("Neg")[0]
    by = {
        "input": model.graph.inputs[0],
        "constant": constant(model, "c", X),
        "output": neg.inputs[0],
    }[source]
    replace(neg, by, model)
    assert ops(model) == ["Relu", "Identity", "Abs"]
    a, y, z = run(model, X)
    assert np.array_equal(y, a if source == "output" else X)
    assert np.array_equal(z, abs(y))
    assert_linked(model)


BODY = """g (bool c, float[2,2] x) => (float[2,2] y) {
    t = Relu(x)
    y = If (c) <then_branch = a () => (float[2,2] p) { p = Neg(t) },
                else_branch = b () => (float[2,2] q) { r = Exp(t)  q = Abs(r) } > }"""


def test_replace_the_output_of_a_body_by_an_outer_tensor() -> None:
    """A body may not return an outer tensor itself: onnxruntime wants an Identity there."""
    model = parse(BODY)
    neg = model.nodes("Neg")[0]
    replace(neg, neg.inputs[0], model)
    assert [n.op for n in model.nodes()] == ["Relu", "If", "Identity", "Exp", "Abs"]
    assert np.array_equal(run(model, np.array(True), X)[0], np.maximum(X, 0))
    assert_linked(model)


def test_replace_of_a_tensor_that_bodies_read() -> None:
    model = parse(BODY)
    relu = model.nodes("Relu")[0]
    replace(relu, relu.inputs[0], model)
    assert np.array_equal(run(model, np.array(True), X)[0], -X)
    assert_linked(model)


# -- insert -------------------------------------------------------------------------------------


def scaled(model: Model, factor: float) -> Any:
    """What `insert` builds: result = source * factor."""

    def build(source: gs.Tensor, result: gs.Tensor, graph: gs.Graph) -> None:
        number = constant(model, "factor", np.float32(factor))
        new_node(model, "Mul", [source, number], [result], name="scale", graph=graph)

    return build


def test_insert_before_all_readers() -> None:
    model = parse("g (float[2,2] x) => (float[2,2] y) { a = Mul(x, x)  y = Add(a, x) }")
    insert(model, tensor(model, "x"), scaled(model, 2))
    assert np.array_equal(run(model, X)[0], 4 * X * X + 2 * X)
    assert [i.name for i in model.to_proto().graph.input] == ["x"]
    assert_linked(model)


def test_insert_before_some_readers() -> None:
    model = parse("g (float[2,2] x) => (float[2,2] y) { a = Mul(x, x)  y = Add(a, x) }")
    insert(model, tensor(model, "x"), scaled(model, 2), uses=[edit.Reader("a", 1)])
    assert np.array_equal(run(model, X)[0], 2 * X * X + X)
    assert_linked(model)


def test_insert_on_an_output_keeps_its_name() -> None:
    model = parse("g (float[2,2] x) => (float[2,2] a, float[2,2] y) { a = Relu(x)  y = Neg(a) }")
    relu = np.maximum(X, 0)
    twin = model.clone()
    insert(model, tensor(model, "a"), scaled(model, 2))
    a, y = run(model, X)
    assert (a.tolist(), y.tolist()) == ((2 * relu).tolist(), (-2 * relu).tolist())
    assert_linked(model)
    insert(twin, tensor(twin, "a"), scaled(twin, 2), uses=[GRAPH_OUTPUT])
    a, y = run(twin, X)
    assert (a.tolist(), y.tolist()) == ((2 * relu).tolist(), (-relu).tolist())
    assert_linked(twin)


def test_insert_between_input_and_output_is_not_possible() -> None:
    model = parse("g (float[2,2] x) => (float[2,2] x, float[2,2] y) { y = Neg(x) }")
    before = model.to_proto()
    assert insert(model, tensor(model, "x"), scaled(model, 2)) is None
    assert model.to_proto() == before


def test_insert_on_an_outer_tensor_reaches_readers_in_bodies() -> None:
    model = parse(BODY)
    insert(model, tensor(model, "t"), scaled(model, 2))
    assert np.array_equal(run(model, np.array(True), X)[0], -2 * np.maximum(X, 0))
    assert_linked(model)


def test_insert_inside_a_body() -> None:
    model = parse(BODY)
    insert(model, tensor(model, "r"), scaled(model, 2))
    (y,) = run(model, np.array(False), X)
    np.testing.assert_allclose(y, 2 * np.exp(np.maximum(X, 0)), rtol=1e-6)
    body = next(g for g in model.graphs() if g.name == "b")
    assert [n.op for n in body.nodes] == ["Exp", "Abs", "Mul"]
    assert_linked(model)


def test_insert_on_a_shared_constant_leaves_other_readers_alone() -> None:
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Mul(x, w)  y = Add(a, w) }"
    model = parse(text)
    insert(model, tensor(model, "w"), scaled(model, 10), uses=[edit.Reader("y", 1)])
    (y,) = run(model, np.float32([1, 1]))
    assert y.tolist() == [11, 22]
    assert numpy_helper.to_array(model.to_proto().graph.initializer[0]).tolist() == [1, 2]
    assert helper.tensor_dtype_to_np_dtype(model.to_proto().graph.initializer[1].data_type) == "f4"
    assert_linked(model)


def test_new_values_take_the_name_of_a_constant_that_goes() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }")
    (node,) = model.nodes("Mul")
    set_input(node, 1, edit.new_values(model, node.inputs[1], np.float32([3, 4]), node))
    assert run(model, np.float32([1, 1]))[0].tolist() == [3, 4]
    (stored,) = model.to_proto().graph.initializer
    assert stored.name == "w"
    assert_linked(model)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Mul(x, w)  y = Add(a, w) }",
        "g (float[2] x) => (float[2] y, float[2] w) { w = Constant<value_floats=[1.0, 2.0]>()"
        " y = Mul(x, w) }",
    ],
)
def test_new_values_leave_a_constant_that_stays_alone(text: str) -> None:
    model = parse(text)
    (node,) = model.nodes("Mul")
    old = node.inputs[1]
    set_input(node, 1, edit.new_values(model, old, np.float32([3, 4]), node))
    assert old.name == "w"
    assert node.inputs[1].name != "w"
    kept = array(old)
    assert kept is not None
    assert kept.tolist() == [1, 2]
    assert_linked(model)


def test_domains_are_dropped_when_nothing_uses_them() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "a" : 1, "b" : 1, "c" : 1]>
    g (float[2] x) => (float[2] y) { y = a.F(x) }
    <domain: "a", opset_import: ["" : 17, "b" : 1]> F (x) => (y) { y = b.G(x) }
    <domain: "b", opset_import: ["" : 17]> G (x) => (y) { y = Relu(x) }
    <domain: "c", opset_import: ["" : 17]> H (x) => (y) { y = Relu(x) }"""
    model = from_proto(parser.parse_model(text))
    edit.drop_domains(model, "a", "b", "c", "unknown")
    assert model.opsets == {"": 17, "a": 1, "b": 1}
    assert [f.name for f in model.functions] == ["F", "G"]
    (node,) = model.nodes("a::F")
    node.op, node.domain = "Relu", None
    edit.drop_domains(model, "a")
    assert model.opsets == {"": 17, "b": 1}
    assert [f.name for f in model.functions] == ["G"]
