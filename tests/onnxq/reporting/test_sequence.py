"""Nodes in an order in which they can be computed."""

from __future__ import annotations

from onnxq.edit import new_node, variable
from onnxq.reporting.sequence import in_sequence
from tests.models.build import parse


def test_a_node_that_was_added_at_the_end_comes_before_its_consumer() -> None:
    model = parse("g (float[4] x) => (float[4] y) { a = Relu(x)\n y = Neg(a) }")
    relu, neg = model.nodes()
    late = variable(model, "late", like=None)
    new_node(model, "Abs", [relu.outputs[0]], [late], name="late")
    neg.inputs[0] = late
    assert [n.op for n in model.nodes()] == ["Relu", "Neg", "Abs"]
    assert [n.op for n in in_sequence(model)] == ["Relu", "Abs", "Neg"]


def test_a_body_reads_from_outside() -> None:
    body = """g (float[4] x, bool c) => (float[4] y) {
        y = If(c) <then_branch = t () => (float[4] u) { u = Neg(late) },
                   else_branch = e () => (float[4] v) { v = Neg(x) }>
        late = Abs(x)
    }"""
    import onnx

    from onnxq.graph import from_proto

    text = f'<ir_version: 8, opset_import: ["" : 17]> {body}'
    model = from_proto(onnx.parser.parse_model(text))
    ops = [n.op for n in in_sequence(model)]
    assert ops.index("Abs") < ops.index("If")
    assert sorted(ops) == ["Abs", "If", "Neg", "Neg"]


def test_a_long_chain() -> None:
    lines = "\n".join(f"t{n + 1} = Neg(t{n})" for n in range(3000))
    model = parse(f"g (float[1] t0) => (float[1] t3000) {{ {lines} }}")
    model.graph.nodes.reverse()
    names = [n.outputs[0].name for n in in_sequence(model)]
    assert names == [f"t{n + 1}" for n in range(3000)]
