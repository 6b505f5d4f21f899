"""Functions that are defined twice, call themselves or take a name of ONNX are refused."""

from __future__ import annotations

import pytest
from onnx import FunctionProto, helper

from onnxq.errors import InvalidModelError, UnsupportedModelError
from onnxq.storage.function_calls import check_functions


def function(name: str, *calls: str, domain: str = "f", overload: str = "") -> FunctionProto:
    nodes = [helper.make_node(op, ["x"], ["y"], domain="f") for op in calls]
    made = helper.make_function(domain, name, ["x"], ["y"], nodes, [helper.make_opsetid("f", 1)])
    made.overload = overload
    return made


REFUSED = {
    "defined twice": ([function("A"), function("A")], "'f::A' is defined twice"),
    "overloads": ([function("A", overload="o")] * 2, r"'f::A' \(overload 'o'\) is defined twice"),
    "calls itself": ([function("A", "A")], "'f::A' calls itself"),
    "in a circle": (
        [function("A", "B"), function("B", "C"), function("C", "B")],
        "'f::B' calls itself",
    ),
    "operator of ONNX": ([function("Conv", domain="ai.onnx")], "name of an ONNX operator"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    functions, message = REFUSED[what]
    with pytest.raises(InvalidModelError, match=message):
        check_functions(functions)


def test_a_call_inside_a_body_counts() -> None:
    body = helper.make_graph([helper.make_node("A", ["x"], ["y"], domain="f")], "b", [], [])
    made = function("A")
    made.node.append(helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body))
    with pytest.raises(InvalidModelError, match="'f::A' calls itself"):
        check_functions([made])


def test_many_calls_of_one_function_are_fine() -> None:
    chain = [function(f"A{i}", f"A{i + 1}", f"A{i + 1}") for i in range(5000)]
    check_functions([*chain, function("A5000"), function("Private", domain="")])
    check_functions([function("A", overload="a"), function("A", overload="b")])


def test_calls_that_have_no_end_in_memory_are_refused() -> None:
    chain = [function(f"A{i}", f"A{i + 1}", f"A{i + 1}") for i in range(5000)]
    nodes = [helper.make_node("A4990", ["x"], ["y"], domain="f")]
    check_functions([*chain, function("A5000", "Last")], nodes)
    body = helper.make_graph([helper.make_node("A0", ["x"], ["y"], domain="f")], "b", [], [])
    for call in (
        helper.make_node("A0", ["x"], ["y"], domain="f"),
        helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body),
    ):
        with pytest.raises(UnsupportedModelError, match="'f::A0' and those it calls expand to too"):
            check_functions([*chain, function("A5000", "Last")], [*nodes, call])
