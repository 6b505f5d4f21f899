"""Patterns of several nodes: what they capture, and what they say where they do not fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from onnxq.graph import Model, from_proto
from onnxq.match import Match, match, op
from tests.zoo_build import Build

CODES = op("Clip", op("QuantizeLinear", "x", "s", "?z")["q"], "?lo", "?hi")["clip"]
PAIR = op("DequantizeLinear", CODES, "s", "?z")
SWISH = op("Mul", "x", op("Sigmoid", "x"), swaps=True)


def build(write: Callable[[Build], str], *others: str) -> Model:
    b = Build(opset=17)
    return from_proto(b.model(write(b), *others))


def root(model: Model) -> gs.Node:
    """The node that makes the first output."""
    return model.graph.outputs[0].inputs[0]


def names(found: Match) -> dict[str, str]:
    return {key: tensor.name for key, tensor in found.tensors.items()}


def parsed(text: str) -> Model:
    """A model whose inputs are x, y and z, from the text of its nodes; its output is o."""
    return from_proto(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17, "c" : 1]>'
            f"g (float[4] x, float[4] y, float[4] z) => (float[4] o) {{ {text} }}"
        )
    )


# -- chains ---------------------------------------------------------------------------------


def test_a_chain_captures_tensors_and_nodes() -> None:
    model = parsed("a = Neg(x) b = Add(a, y) o = Relu(b)")
    found = match(root(model), op("Relu", op("Add", op("Neg", "in")["neg"], "other")["add"]))
    assert found
    assert found.reason == ""
    assert names(found) == {"in": "x", "other": "y"}
    assert {key: node.op for key, node in found.nodes.items()} == {"neg": "Neg", "add": "Add"}
    assert [node.op for node in found.inner] == ["Relu", "Add", "Neg"]
    assert found["in"] is model.graph.inputs[0]
    assert found.get("absent") is None


def test_the_captured_objects_are_those_of_the_graph() -> None:
    model = parsed("a = Neg(x) o = Relu(a)")
    found = match(root(model), op("Relu", op("Neg", "in")["neg"]))
    assert found.nodes["neg"] is model.nodes("Neg")[0]
    assert found["in"] is model.nodes("Neg")[0].inputs[0]


@pytest.mark.parametrize("inner", ["Relu", "Sigmoid", "c::Custom"])
def test_alternatives_and_domains(inner: str) -> None:
    model = parsed(f"a = {inner.replace('::', '.')}(x) o = Neg(a)")
    assert match(root(model), op("Neg", op("Relu|Sigmoid|c::Custom", "x")))


def test_the_same_op_of_another_domain_does_not_match() -> None:
    model = parsed("a = c.Relu(x) o = Neg(a)")
    found = match(root(model), op("Neg", op("Relu", "x")))
    assert not found
    assert "is not Relu" in found.reason
    assert match(root(model), op("Neg", op("c::Relu", "x")))


def test_the_default_domain_may_be_spelled_out() -> None:
    model = parsed("a = Neg(x) o = Relu(a)")
    model.nodes("Neg")[0].domain = "ai.onnx"
    assert match(root(model), op("Relu", op("Neg", "x")))


def test_naming_a_pattern_leaves_the_original_alone() -> None:
    plain = op("Neg", "x")
    assert plain["n"].name == "n"
    assert plain.name == ""


# -- diamonds -------------------------------------------------------------------------------


def test_the_same_name_twice_is_the_same_tensor() -> None:
    pattern = op("Mul", "x", op("Sigmoid", "x"))
    assert match(root(parsed("s = Sigmoid(x) o = Mul(x, s)")), pattern)
    found = match(root(parsed("s = Sigmoid(y) o = Mul(x, s)")), pattern)
    assert found.reason == "'x' and 'y' differ, but must be the same"
    assert not found.tensors
    assert not found.inner


def test_a_long_diamond() -> None:
    gelu = op(
        "Mul",
        op("Mul", "x", op("Add", op("Erf", op("Div", "x", "root")), "one"), swaps=True),
        "half",
    )
    text = "d = Div(x, r) e = Erf(d) a = Add(e, c1) m = Mul({}) o = Mul(m, c2)"
    constants = "r = Constant<value_float=1.4142135>() c1 = Constant<value_float=1.0>() "
    constants += "c2 = Constant<value_float=0.5>() "
    for order in ("x, a", "a, x"):
        found = match(root(parsed(constants + text.format(order))), gelu)
        assert names(found) == {"x": "x", "root": "r", "one": "c1", "half": "c2"}, found.reason
        assert [n.op for n in found.inner] == ["Mul", "Mul", "Add", "Erf", "Div"]


def test_a_named_node_twice_is_the_same_node() -> None:
    relu = op("Relu", "x")["relu"]
    one = match(root(parsed("a = Relu(x) o = Add(a, a)")), op("Add", relu, relu))
    assert [node.op for node in one.inner] == ["Add", "Relu"]
    two = match(root(parsed("a = Relu(x) b = Relu(x) o = Add(a, b)")), op("Add", relu, relu))
    assert "must be the same node" in two.reason


@pytest.mark.parametrize(("second", "matches"), [(0.5, True), (0.25, False)])
def test_constants_of_equal_value_are_the_same(second: float, matches: bool) -> None:
    def write(b: Build) -> str:
        scale, again = b.init(np.float32(0.5), "s1"), b.init(np.float32(second), "s2")
        zero = b.init(np.int8(0), "zero")
        codes = b.op("QuantizeLinear", b.input("x", [4]), scale, zero)
        return b.op("DequantizeLinear", codes, again, zero)

    pattern = op("DequantizeLinear", op("QuantizeLinear", "x", "s", "z"), "s", "z")
    found = match(root(build(write)), pattern)
    assert bool(found) is matches
    assert found.reason == ("" if matches else "'s1' and 's2' differ, but must be the same")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.float32(0.0), np.float32(-0.0)),
        (np.float32([1]), np.float32(1)),
        (np.float32([1]), np.float32([1, 1])),
    ],
)
def test_constants_that_only_look_equal_differ(left: object, right: object) -> None:
    def write(b: Build) -> str:
        x = b.op("Mul", b.input("x", [2]), b.init(np.asarray(left), "l"))
        return b.op("Add", x, b.init(np.asarray(right), "r"))

    found = match(root(build(write)), op("Add", op("Mul", "x", "c"), "c"))
    assert found.reason == "'l' and 'r' differ, but must be the same"


# -- swaps ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["x, s", "s, x"])
def test_swaps_takes_both_orders(order: str) -> None:
    found = match(root(parsed(f"s = Sigmoid(x) o = Mul({order})")), SWISH)
    assert names(found) == {"x": "x"}


@pytest.mark.parametrize("inner", ["x, y", "y, x"])
@pytest.mark.parametrize("outer", ["m, x", "x, m"])
def test_an_inner_swap_is_undone_where_the_outer_input_asks_for_it(inner: str, outer: str) -> None:
    pattern = op("Add", op("Mul", "a", "b", swaps=True), "a", swaps=True)
    found = match(root(parsed(f"m = Mul({inner}) o = Add({outer})")), pattern)
    assert names(found) == {"a": "x", "b": "y"}, found.reason


def test_a_failed_order_leaves_nothing_behind() -> None:
    # The first order captures "in" = x and "right" = Neg(y) before it fails at y, which is not x.
    pair = op("Add", op("Neg", "in")["left"], op("Neg", "x")["right"], swaps=True)
    model = parsed("a = Neg(x) b = Neg(y) s = Add(a, b) o = Sub(x, s)")
    found = match(root(model), op("Sub", "x", pair))
    assert names(found) == {"x": "x", "in": "y"}
    assert found.nodes["right"].inputs[0].name == "x"
    assert [node.op for node in found.inner] == ["Sub", "Add", "Neg", "Neg"]


def test_without_swaps_the_order_counts() -> None:
    model = parsed("s = Sigmoid(x) o = Mul(s, x)")
    found = match(root(model), op("Mul", "x", op("Sigmoid", "x")))
    assert "is not made by Sigmoid" in found.reason


@pytest.mark.parametrize("inputs", [("a",), ("a", "b", "c")])
def test_only_two_inputs_can_be_exchanged(inputs: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match="only two inputs can be exchanged"):
        op("Sum", *inputs, swaps=True)


# -- optional inputs ------------------------------------------------------------------------


def quantized(*, zero: bool, low: bool, high: bool) -> Model:
    """Q -> Clip -> DQ with some of the optional inputs."""

    def write(b: Build) -> str:
        scale = [b.init(np.float32(0.5), "scale")]
        shift = [b.init(np.uint8(3), "zero")] if zero else []
        codes = b.op("QuantizeLinear", b.input("x", [4]), *scale, *shift)
        bounds = [
            b.init(np.uint8(1), "lo") if low else "",
            b.init(np.uint8(9), "hi") if high else "",
        ]
        return b.op("DequantizeLinear", b.op("Clip", codes, *bounds), *scale, *shift)

    return build(write)


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("low", [True, False])
@pytest.mark.parametrize("high", [True, False])
def test_optional_inputs_may_be_left_out(zero: bool, low: bool, high: bool) -> None:
    found = match(root(quantized(zero=zero, low=low, high=high)), PAIR)
    want = {"x": "x", "s": "scale"}
    want |= {key: name for key, name, on in (("z", "zero", zero), ("lo", "lo", low)) if on}
    want |= {"hi": "hi"} if high else {}
    assert names(found) == want, found.reason
    assert (found.get("lo") is None) is not low


def test_an_optional_input_must_agree_where_it_is_given() -> None:
    def write(b: Build) -> str:
        scale = b.init(np.float32(0.5), "scale")
        codes = b.op("QuantizeLinear", b.input("x", [4]), scale, b.init(np.uint8(3), "z1"))
        codes = b.op("Clip", codes)
        return b.op("DequantizeLinear", codes, scale, b.init(np.uint8(4), "z2"))

    assert match(root(build(write)), PAIR).reason == "'z1' and 'z2' differ, but must be the same"


def test_empty_inputs_at_the_end_do_not_count() -> None:
    def write(b: Build) -> str:
        return b.op("Clip", b.input("x", [4]), b.init(np.float32(0), "low"), "")

    assert names(match(root(build(write)), op("Clip", "x", "low"))) == {"x": "x", "low": "low"}


# -- reasons --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pattern", "reason"),
    [
        ("o = Relu(x)", op("Neg", "x"), "is not Neg"),
        ("o = Relu(x)", op("Neg|Abs", "x"), "is not Neg or Abs"),
        ("a = Neg(x) o = Relu(a)", op("Relu", op("Abs", "x")), "is not Abs"),
        ("o = Relu(x)", op("Relu", op("Abs|Neg", "x")), "is not made by Abs or Neg"),
        ("o = Clip(x)", op("Clip", "x", "lo", "?hi"), "input 1 of"),
        ("o = Clip(x)", op("Clip", "x", op("Abs", "y")), "is not made by Abs"),
        ("o = Sum(x, y, z)", op("Sum", "a", "b"), "has 3 inputs, 2 at most are expected"),
    ],
)
def test_the_reason_names_node_and_input(text: str, pattern: object, reason: str) -> None:
    model = parsed(text)
    found = match(root(model), pattern)  # type: ignore[arg-type]
    assert not found
    assert reason in found.reason
    assert (found.tensors, found.nodes, found.inner) == ({}, {}, [])


def test_a_missing_input_is_named() -> None:
    model = parsed("o = Clip(x)")
    model.nodes("Clip")[0].name = "clamp"
    found = match(root(model), op("Clip", "x", "lo"))
    assert "input 1 of" in found.reason
    assert "clamp" in found.reason
    assert found.reason.endswith("is missing")


def test_only_the_first_output_of_a_node_is_its_result() -> None:
    model = parsed("a, b = Split(x) o = Neg(b)")
    found = match(root(model), op("Neg", op("Split", "x")))
    assert found.reason.endswith("is not made by Split")
    assert match(root(parsed("a, b = Split(x) o = Neg(a)")), op("Neg", op("Split", "x")))


def test_with_swaps_the_attempt_that_came_furthest_speaks() -> None:
    found = match(root(parsed("s = Sigmoid(y) o = Mul(s, x)")), SWISH)
    assert found.reason == "'y' and 'x' differ, but must be the same"
