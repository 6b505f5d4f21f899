from __future__ import annotations

import pytest

from onnxq.analysis.float_graph import FloatGraph
from onnxq.graph import Model
from onnxq.quant.qparams import GRAPH_OUTPUT, Reader, Role
from tests.models.build import parse, quantize, tensor, weight
from tests.models.canonical import expose, grid, put

FORK = """g (float[2,3] x) => (float[2,3] y, float[2,3] z)
   { a = Relu(x)  b = Sigmoid(a)  y = Add(a, b)  z = Neg(a) }"""


def described(model: Model) -> list[tuple[str, list[tuple[int, list[Reader]]]]]:
    """Each quantized tensor with depth and readers of its quantizers."""
    graph = FloatGraph(model)
    return [
        (graph.name(t.tensor), [(q.depth, [graph.reader(u) for u in q.uses]) for q in t.quantizers])
        for t in graph.quantized
    ]


def test_tree_of_quantizers() -> None:
    model = parse(FORK)
    first = put(model, tensor(model, "a"), grid("a", 0), [Reader("y", 0), Reader("z", 0)])
    put(model, first, grid("a", 1), [Reader("z", 0)])
    put(model, tensor(model, "a"), grid("a", 2), [Reader("b", 0)])
    assert described(model) == [
        (
            "a",
            [
                (0, [Reader("b", 0)]),
                (0, [Reader("y", 0), Reader("z", 0)]),
                (1, [Reader("z", 0)]),
            ],
        )
    ]
    (found,) = FloatGraph(model).quantized
    assert [len(q.path()) for q in found.quantizers] == [1, 1, 2]
    assert found.heir is None


def test_order_is_that_of_the_first_use_however_quantizers_were_added() -> None:
    orders = []
    for names in (("x", "b", "a"), ("a", "b", "x"), ("b", "x", "a")):
        model = parse(FORK)
        for name in names:
            quantize(model, name)
        orders.append([name for name, _ in described(model)])
    assert orders == [["x", "a", "b"]] * 3


def test_names_of_outputs_pass_to_float_tensors_and_readers() -> None:
    model = parse(FORK)
    put(model, tensor(model, "a"), grid("a"), [Reader("z", 0)])
    quantize(model, "z")
    assert tensor(model, "z").inputs[0].op == "FakeQuantize"
    assert described(model) == [
        ("a", [(0, [Reader("z", 0)])]),
        ("z", [(0, [GRAPH_OUTPUT])]),
    ]
    assert "z" in FloatGraph(model).tensors
    assert "z.raw" not in FloatGraph(model).tensors


def test_output_of_an_input_is_a_use() -> None:
    model = parse(FORK)
    made = put(model, tensor(model, "x"), grid("x"))
    expose(model, made)
    (found,) = FloatGraph(model).quantized
    assert found.heir is None
    assert [FloatGraph(model).reader(use) for use in found.uses] == [
        Reader("a", 0),
        Reader(made.name, 0),
    ]


def test_roles() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    weight(model, "w")
    quantize(model, "x")
    roles = {t.tensor.name: t.role for t in FloatGraph(model).quantized}
    assert roles == {"x": Role.ACTIVATION, "w": Role.WEIGHT}


@pytest.mark.parametrize("length", [1, 1500])
def test_long_chains_of_quantizers(length: int) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    at = tensor(model, "x")
    for _ in range(length):
        at = put(model, at, grid("x"))
    (found,) = FloatGraph(model).quantized
    assert [q.depth for q in found.quantizers] == list(range(length))
