from __future__ import annotations

import onnx
import pytest

from onnxq.errors import InvalidModelError
from onnxq.storage.node_order import ordered, reads

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, bool f) => (float[2] y) {
    a = Relu(x)
    b = If (f) <then_branch = t () => (float[2] c) { c = Neg(a) },
                else_branch = e () => (float[2] d) { h = Abs(x)  d = Add(h, a) }>
    y = Neg(b)
}"""


def graph() -> onnx.GraphProto:
    return onnx.parser.parse_model(TEXT).graph


def test_a_sorted_graph_stays_as_it_is() -> None:
    assert [n.output[0] for n in ordered(graph())] == ["a", "b", "y"]


def test_nodes_come_after_what_their_bodies_read() -> None:
    shuffled = graph()
    nodes = list(shuffled.node)
    del shuffled.node[:]
    shuffled.node.extend(reversed(nodes))
    assert [n.output[0] for n in ordered(shuffled)] == ["a", "b", "y"]


def test_bodies_count_among_what_is_read() -> None:
    assert {"f", "a", "x"} <= set(reads(graph().node[1]))


def test_a_cycle_is_refused() -> None:
    broken = graph()
    broken.node[0].input[0] = "y"
    with pytest.raises(InvalidModelError, match="cycle"):
        ordered(broken)
