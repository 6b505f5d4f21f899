"""Links are cut and found like in plain lists, at a cost that does not grow with their number."""

from __future__ import annotations

import random
from typing import Any

import onnx_graphsurgeon as gs
import pytest

from onnxq.graph.links import LONG, cut, put, slot_of
from onnxq.storage.gs_objects import make_node, make_variable

MANY = 4 * LONG


def _read(times: int) -> tuple[gs.Variable, list[gs.Node]]:
    """A tensor, and the nodes that read it: every fourth of them twice."""
    shared = make_variable("shared")
    return shared, [
        make_node("Add", f"n{i}", {}, [shared] * (2 if i % 4 == 0 else 1), []) for i in range(times)
    ]


def _names(links: list[gs.Node]) -> list[str]:
    return [node.name for node in links]


@pytest.mark.parametrize("few", [3, MANY])
def test_cut_links_are_gone_however_one_looks(few: int) -> None:
    shared, nodes = _read(few)
    expected = _names(shared.outputs)
    order = list(nodes)
    random.Random(few).shuffle(order)
    for node in order:
        cut(shared.outputs, node)
        expected.remove(node.name)
        assert len(shared.outputs) == len(expected)
        assert bool(shared.outputs) == bool(expected)
        if len(expected) % 7 == 0:
            assert _names(shared.outputs) == expected
            assert _names(list(shared.outputs)) == _names([*shared.outputs]) == expected
            assert (node in shared.outputs) == (node.name in expected)
            assert [n.name for n in reversed(shared.outputs)] == expected[::-1]
            if expected:
                assert shared.outputs[0].name == expected[0]
                assert shared.outputs[-1].name == expected[-1]


def test_a_link_made_again_counts() -> None:
    shared, nodes = _read(MANY)
    plain = type(shared.outputs)
    cut(shared.outputs, nodes[1])
    list.append(shared.outputs, nodes[1])
    shared.outputs.append(nodes[2])
    assert _names(shared.outputs)[-2:] == ["n1", "n2"]
    assert _names(shared.outputs).count("n1") == 1
    assert _names(shared.outputs).count("n2") == 2
    assert isinstance(shared.outputs, plain)


def test_a_list_that_is_short_again_is_a_plain_one() -> None:
    shared, nodes = _read(MANY)
    plain = type(shared.outputs)
    for node in nodes:
        for _ in node.inputs:
            cut(shared.outputs, node)
    assert type(shared.outputs) is plain
    assert shared.outputs == []


@pytest.mark.parametrize("many", [5, MANY])
def test_slots_are_found_after_changes(many: int) -> None:
    tensors: list[Any] = [make_variable(f"t{i}") for i in range(many)]
    node = make_node("Concat", "c", {}, tensors, [])
    for i in range(0, many, 2):
        tensors[i] = make_variable("new")
        assert slot_of(node.inputs, tensors[i + 1 if i + 1 < many else i - 1])
        put(node.inputs, i, tensors[i])
        assert slot_of(node.inputs, tensors[i]) == i
    list.insert(node.inputs, 0, make_variable("first"))
    assert [slot_of(node.inputs, t) for t in tensors] == list(range(1, many + 1))
