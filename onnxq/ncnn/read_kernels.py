"""ncnn's layers with kernels as ONNX: convolutions and products, with quantizers where int8."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.ncnn.network import CODES
from onnxq.ncnn.program import Layer
from onnxq.ncnn.read_graph import Graph
from onnxq.quant.qparams import Array


def _step(layer: Layer, scales: Array) -> Array:
    """The steps of stored scales."""
    if not (scales > 0).all():
        raise layer.error("a scale is not positive")
    with np.errstate(over="ignore"):
        steps = (1.0 / scales.astype(np.float64)).astype(np.float32)
        if not np.isfinite(steps * np.float32(CODES[1])).all():
            raise layer.error("a scale is so small that its codes have no value in float32")
    return steps


def _kernel(graph: Graph, layer: Layer, shape: tuple[int, ...], axis: int) -> tuple[str, str]:
    """The tensor to multiply and the weight, both behind quantizers where the layer has int8."""
    source, stored = graph.name(layer.bottoms[0]), layer.weights[0]
    name = f"{layer.name}.weight"
    if stored.dtype != np.int8 and layer.integer(8, 0):
        raise layer.error("it has scales, but its weights are not int8")
    if stored.dtype != np.int8:
        values = stored.reshape(shape)
        return source, graph.constant(name, values if axis == 0 else values.swapaxes(0, 1))
    if not layer.integer(8, 0):
        raise layer.error("its weights are int8, but it has no scales")
    if (stored < CODES[0]).any():
        raise layer.error(f"its weights hold codes below {CODES[0]}")
    steps, step = (_step(layer, w) for w in layer.weights[-2:])
    steps = np.repeat(steps, shape[0] // steps.size)
    values = stored.reshape(shape) * steps.reshape(-1, *[1] * (len(shape) - 1))
    values = values if axis == 0 else np.ascontiguousarray(values.swapaxes(0, 1))
    graph.constant(f"{name}.stored", values.astype(np.float32))
    graph.fake(f"{name}.stored", name, steps, axis)
    graph.fake(source, f"{layer.name}.input", step.reshape(()))
    return f"{layer.name}.input", name


def _bias(graph: Graph, layer: Layer, key: int) -> list[str]:
    if not layer.integer(key, 0):
        return []
    return [graph.constant(f"{layer.name}.bias", layer.weights[1])]


def _window(layer: Layer) -> dict[str, list[int]]:
    i = layer.integer
    return {
        "kernel_shape": [i(11), i(1)],
        "strides": [i(13), i(3)],
        "dilations": [i(12), i(2)],
        "pads": [i(14), i(4), i(16), i(15)],
    }


def conv(graph: Graph, layer: Layer) -> None:
    """Convolutions and their transposes, with and without groups."""
    outputs, group = layer.integer(0), layer.integer(7, 1)
    rows, columns = layer.integer(11), layer.integer(1)
    if min(outputs, group, rows, columns) < 1:
        raise layer.error("its outputs, groups or kernel are not positive")
    inner, rest = divmod(layer.integer(6), outputs * rows * columns)
    if rest or inner < 1 or outputs % group:
        raise layer.error("the size of its weights does not fit its kernel")
    shape = (outputs, inner, rows, columns)
    back = layer.type.startswith("Deconvolution")
    if back and group > 1:
        source, stored = graph.name(layer.bottoms[0]), layer.weights[0]
        if stored.dtype != np.float32:
            raise layer.error("its weights are int8, but it has no scales")
        grouped = stored.reshape(group, -1, *shape[1:]).swapaxes(1, 2)
        values = grouped.reshape(group * inner, outputs // group, *shape[2:])
        weight = graph.constant(f"{layer.name}.weight", np.ascontiguousarray(values))
    else:
        source, weight = _kernel(graph, layer, shape, 1 if back else 0)
    window: dict[str, Any] = dict(_window(layer))
    if back:
        window["output_padding"] = [layer.integer(19, 0), layer.integer(18, 0)]
    operands = [source, weight, *_bias(graph, layer, 5)]
    op = "ConvTranspose" if back else "Conv"
    graph.node(op, operands, layer.tops[0], layer.name, group=group, **window)
    graph.rank[layer.tops[0]] = 4


def inner_product(graph: Graph, layer: Layer) -> None:
    """Products with a weight."""
    outputs = layer.integer(0)
    if outputs < 1:
        raise layer.error(f"it has {outputs} outputs")
    inner, rest = divmod(layer.integer(2), outputs)
    if rest or inner < 1:
        raise layer.error("the size of its weights is no multiple of its outputs")
    source, weight = _kernel(graph, layer, (outputs, inner), 1)
    bias = _bias(graph, layer, 1)
    top = layer.tops[0]
    graph.node("MatMul", [source, weight], f"{layer.name}.sum" if bias else top, layer.name)
    if bias:
        graph.node("Add", [f"{layer.name}.sum", *bias], top, f"{layer.name}.add")
    graph.rank[top] = graph.rank[layer.bottoms[0]]
