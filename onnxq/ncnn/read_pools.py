"""ncnn's pools, resizing, normalisation and reductions, as ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.ncnn.norms import REDUCTIONS
from onnxq.ncnn.pools import LINEAR, NEAREST
from onnxq.ncnn.program import Layer
from onnxq.ncnn.read_graph import OPSET, Graph, same


def pooling(graph: Graph, layer: Layer) -> None:
    """Windows, or all positions."""
    source, (top,) = graph.name(layer.bottoms[0]), layer.tops
    kind = "AveragePool" if layer.integer(0, 0) else "MaxPool"
    if layer.integer(4, 0):
        graph.node(f"Global{kind}", [source], f"{layer.name}.pooled", layer.name)
        graph.node("Flatten", [f"{layer.name}.pooled"], top, f"{layer.name}.flatten")
        graph.rank[top] = 2
        return
    i = layer.integer
    if i(5, 0) != 1:
        raise layer.error("only pools that round down (5=1) are read")
    window: dict[str, Any] = {
        "kernel_shape": [i(11), i(1)],
        "strides": [i(12), i(2)],
        "pads": [i(13), i(3), i(15), i(14)],
    }
    if kind == "AveragePool":
        window["count_include_pad"] = i(6, 0)
    elif i(6, 0):
        raise layer.error("it counts pads in an average and takes a maximum")
    graph.node(kind, [source], top, layer.name, **window)
    graph.rank[top] = 4


def interp(graph: Graph, layer: Layer) -> None:
    """Another height and width."""
    kind, corners = layer.integer(0, 0), layer.integer(6, 0)
    if kind not in (NEAREST, LINEAR) or (kind == NEAREST and corners):
        raise layer.error("only nearest neighbours (0=1) and linear ones (0=2) are read")
    factors = np.array([1, 1, layer.number(1, 1.0), layer.number(2, 1.0)], np.float32)
    if not (factors > 0).all():
        raise layer.error("its factors are not positive")
    scales = graph.constant(f"{layer.name}.scales", factors)
    operands = [graph.name(layer.bottoms[0]), "", scales]
    rules = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    rules["nearest_mode"] = "floor"
    if kind == LINEAR:
        rule = "align_corners" if corners else "half_pixel"
        rules = {"mode": "linear", "coordinate_transformation_mode": rule}
    graph.node("Resize", operands, layer.tops[0], layer.name, **rules)
    graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]


def layer_norm(graph: Graph, layer: Layer) -> None:
    """Over the last axis."""
    if len(layer.weights) != 2:
        raise layer.error("one without gain and shift is not read")
    names = [
        graph.constant(f"{layer.name}.{what}", value)
        for what, value in zip(("gain", "shift"), layer.weights, strict=True)
    ]
    operands = [graph.name(layer.bottoms[0]), *names]
    epsilon = layer.number(1, 1e-3)
    graph.node("LayerNormalization", operands, layer.tops[0], layer.name, epsilon=epsilon)
    graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]


def softmax(graph: Graph, layer: Layer) -> None:
    """Over one axis."""
    if layer.integer(1, 0) != 1:
        raise layer.error("only axes that count from the first (1=1) are read")
    same("Softmax", lambda layer: {"axis": layer.integer(0, 0) + 1})(graph, layer)


def batch_norm(graph: Graph, layer: Layer) -> None:
    """By stored mean and variance."""
    gain, mean, variance, shift = layer.weights
    names = [
        graph.constant(f"{layer.name}.{what}", value)
        for what, value in zip(
            ("gain", "shift", "mean", "variance"), (gain, shift, mean, variance), strict=True
        )
    ]
    operands, epsilon = [graph.name(layer.bottoms[0]), *names], layer.number(1, 0.0)
    graph.node("BatchNormalization", operands, layer.tops[0], layer.name, epsilon=epsilon)
    graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]


def instance_norm(graph: Graph, layer: Layer) -> None:
    """By mean and variance of each channel."""
    if len(layer.weights) != 2:
        raise layer.error("one without gain and shift is not read")
    names = [
        graph.constant(f"{layer.name}.{what}", value)
        for what, value in zip(("gain", "shift"), layer.weights, strict=True)
    ]
    operands, epsilon = [graph.name(layer.bottoms[0]), *names], layer.number(1, 1e-3)
    graph.node("InstanceNormalization", operands, layer.tops[0], layer.name, epsilon=epsilon)
    graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]


def reduction(graph: Graph, layer: Layer) -> None:
    """Over some axes, which stay with size 1."""
    op = next((op for op, number in REDUCTIONS.items() if number == layer.integer(0)), None)
    axes, rank = layer.integers(3), graph.rank[layer.bottoms[0]]
    if op is None or [layer.integer(key) for key in (1, 4, 5)] != [0, 1, 1]:
        raise layer.error("only reductions of some axes, which are kept, are read")
    if not axes or axes != tuple(sorted({*axes})) or not 0 <= axes[0] <= axes[-1] < rank - 1:
        raise layer.error(f"its axes {axes} do not fit its input of {rank - 1} axes")
    inner = [a + 1 for a in axes]
    operands, attrs = [graph.name(layer.bottoms[0])], dict[str, Any]()
    if op == "ReduceSum" or OPSET >= 18:
        operands.append(graph.constant(f"{layer.name}.axes", np.array(inner, np.int64)))
    else:
        attrs["axes"] = inner
    graph.node(op, operands, layer.tops[0], layer.name, keepdims=1, **attrs)
    graph.rank[layer.tops[0]] = rank
