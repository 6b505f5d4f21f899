"""Two function bodies have one form where they compute the same, whatever names they use."""

from __future__ import annotations

import onnx
import pytest

from onnxq.canonical import fake_quantize, fake_quantize_log
from onnxq.storage.function_form import all_nodes, form_of


def function(body: str, head: str = "F <low, high = 3> (a, b) => (c)") -> onnx.FunctionProto:
    return onnx.parser.parse_function(f'<domain: "d", opset_import: ["" : 17]> {head} {{ {body} }}')


BODY = "t = Mul(a, b)\n u = Neg(b)\n c = Gather <axis: int = @low> (t, u)"


@pytest.mark.parametrize(
    "same",
    [
        "left = Mul(a, b)\n right = Neg(b)\n c = Gather <axis: int = @low> (left, right)",
        "u = Neg(b)\n t = Mul(a, b)\n c = Gather <axis: int = @low> (t, u)",
        f"{BODY}\n unread = Neg(a)",
    ],
    ids=["names", "order", "unread"],
)
def test_names_order_and_dead_nodes_do_not_matter(same: str) -> None:
    assert form_of(function(same)) == form_of(function(BODY))


@pytest.mark.parametrize(
    "other",
    [
        "t = Mul(b, a)\n u = Neg(b)\n c = Gather <axis: int = @low> (t, u)",
        "t = Mul(a, b)\n u = Neg(b)\n c = Gather <axis: int = @high> (t, u)",
        "t = Mul(a, b)\n u = Neg(b)\n c = Gather (t, u)",
        "t = Mul(a, b)\n u = other.Neg(b)\n c = Gather <axis: int = @low> (t, u)",
        f"{BODY}\n c2 = Neg(c)".replace("c =", "d =").replace("c2 = Neg(c)", "c = Neg(d)"),
    ],
    ids=["operands", "attribute", "no attribute", "domain", "one node more"],
)
def test_what_computes_something_else_has_another_form(other: str) -> None:
    assert form_of(function(other)) != form_of(function(BODY))


@pytest.mark.parametrize(
    "head",
    ["F <low, high = 4> (a, b) => (c)", "F <low> (a, b) => (c)", "F <low, high> (a, b) => (c)"],
)
def test_defaults_of_attributes_are_part_of_the_form(head: str) -> None:
    assert form_of(function(BODY, head)) != form_of(function(BODY))


def test_a_body_that_reads_what_nothing_makes_has_no_form() -> None:
    assert form_of(function("c = Neg(missing)")) is None
    assert form_of(function("t = Neg(a)")) is None


@pytest.mark.parametrize("make", [fake_quantize.function, fake_quantize_log.function])
def test_comments_and_names_of_tensors_do_not_matter(make: object) -> None:
    assert callable(make)
    twin = onnx.FunctionProto()
    twin.CopyFrom(make(17))
    twin.doc_string = "other"
    twin.metadata_props.add(key="k", value="v")
    for number, node in enumerate(twin.node):
        node.name, node.doc_string = f"node {number}", "a comment"
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.name = "renamed"
    assert form_of(twin) == form_of(make(17))


def test_nodes_in_bodies_are_found() -> None:
    body = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["a"], ["b"])], "body", [], [])
    branch = onnx.helper.make_node("If", ["c"], ["d"], then_branch=body, else_branch=body)
    assert [n.op_type for n in all_nodes([branch])] == ["If", "Neg", "Neg"]
