"""ncnn's layers that compute element by element, as ONNX, and the three that round a blob."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.ncnn.elementwise import SQUARE, UNARY
from onnxq.ncnn.network import MULTIPLY
from onnxq.ncnn.program import Layer
from onnxq.ncnn.read_graph import Graph, same

_ARITHMETIC = {0: ("Add", False), 1: ("Sub", False), 2: ("Mul", False), 3: ("Div", False)} | {
    4: ("Max", False),
    5: ("Min", False),
    7: ("Sub", True),
    8: ("Div", True),
}


def quantize(graph: Graph, layer: Layer) -> None:
    """Real numbers to codes."""
    (top,), (bottom,) = layer.tops, layer.bottoms
    if layer.weights[0].size != 1:
        raise layer.error(f"{layer.weights[0].size} scales, and one is read")
    graph.rank[top] = graph.rank[bottom]
    graph.codes[top] = graph.name(bottom), float(layer.weights[0][0])


def cast(graph: Graph, layer: Layer) -> None:
    """Codes as real numbers."""
    (top,), (bottom,) = layer.tops, layer.bottoms
    if bottom not in graph.codes or (layer.params.get(0), layer.params.get(1)) != (3, 1):
        raise layer.error("it does not turn codes into real numbers")
    graph.rank[top] = graph.rank[bottom]
    graph.codes[top] = graph.codes[bottom]


def binary(graph: Graph, layer: Layer) -> None:
    """Two operands."""
    number, (top,) = layer.integer(0, 0), layer.tops
    if number not in _ARITHMETIC:
        raise layer.error(f"operation {number} is not read")
    op, turned = _ARITHMETIC[number]
    first = layer.bottoms[0]
    graph.rank[top] = max(graph.rank[b] for b in layer.bottoms)
    if first in graph.codes:
        source, scale = graph.codes[first]
        step = np.float32(layer.number(2, 0.0))
        if number != MULTIPLY or not layer.integer(1, 0) or abs(step * scale - 1) > 1e-6:
            raise layer.error("it does not multiply codes with the step they were made with")
        graph.fake(source, top, np.asarray(step))
        return
    operands = [graph.name(b) for b in layer.bottoms]
    if layer.integer(1, 0):
        value = np.float32(layer.number(2, 0.0))
        operands.append(graph.constant(f"{layer.name}.operand", np.asarray(value)))
    graph.node(op, operands[::-1] if turned else operands, top, layer.name)


def clip(graph: Graph, layer: Layer) -> None:
    """Between two bounds."""
    largest = float(np.finfo(np.float32).max)
    ends = (layer.number(0, -largest), layer.number(1, largest))
    bounds = [
        graph.constant(f"{layer.name}.{end}", np.asarray(value, np.float32))
        for end, value in zip(("min", "max"), ends, strict=True)
    ]
    graph.node("Clip", [graph.name(layer.bottoms[0]), *bounds], layer.tops[0], layer.name)
    graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]


def prelu(graph: Graph, layer: Layer) -> None:
    """A slope per channel."""
    rank = graph.rank[layer.bottoms[0]]
    slope = graph.constant(f"{layer.name}.slope", layer.weights[0].reshape(-1, *[1] * (rank - 2)))
    graph.node("PRelu", [graph.name(layer.bottoms[0]), slope], layer.tops[0], layer.name)
    graph.rank[layer.tops[0]] = rank


def hard(layer: Layer) -> dict[str, Any]:
    """The line of HardSigmoid and HardSwish."""
    return {"alpha": layer.number(0, 0.2), "beta": layer.number(1, 0.5)}


def hard_swish(graph: Graph, layer: Layer) -> None:
    """x * HardSigmoid(x)."""
    source, gate = graph.name(layer.bottoms[0]), f"{layer.name}.gate"
    graph.node("HardSigmoid", [source], gate, gate, **hard(layer))
    graph.node("Mul", [source, gate], layer.tops[0], layer.name)
    graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]


def relu(graph: Graph, layer: Layer) -> None:
    """Relu, or LeakyRelu."""
    slope = layer.number(0, 0.0)
    translate = same("LeakyRelu", lambda layer: {"alpha": slope}) if slope else same("Relu")
    translate(graph, layer)


def unary(graph: Graph, layer: Layer) -> None:
    """One operand."""
    number = layer.integer(0, 0)
    if number == SQUARE:
        source = graph.name(layer.bottoms[0])
        two = graph.constant(f"{layer.name}.exponent", np.asarray(np.float32(2)))
        graph.node("Pow", [source, two], layer.tops[0], layer.name)
        graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]
        return
    op = next((op for op, n in UNARY.items() if n == number), None)
    if op is None:
        raise layer.error(f"operation {number} is not read")
    same(op)(graph, layer)


def gelu(graph: Graph, layer: Layer) -> None:
    """x times the normal distribution, exactly or by tanh."""
    rules = {"approximate": "tanh" if layer.integer(0, 0) else "none"}
    same("Gelu", lambda layer: rules)(graph, layer)
