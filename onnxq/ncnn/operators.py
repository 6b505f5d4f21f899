"""The operators that ncnn runs, each as the layers that compute it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of
from onnxq.graph.constants import array, is_constant, scalar
from onnxq.ncnn.kernels import conv, conv_transpose, integers, linear, plane, result, window
from onnxq.ncnn.network import Network, NotInNcnn, dims, layer_name
from onnxq.ncnn.program import ARITHMETIC, ORDERS, Value

Translator = Callable[[Network, gs.Node], None]


def _arithmetic(net: Network, node: gs.Node) -> None:
    first, second = node.inputs
    number, reverse = ARITHMETIC[node.op]
    fixed = [is_constant(t) for t in (first, second)]
    if all(fixed):
        raise NotInNcnn("both its inputs are constants; 'fold-constants' computes it")
    top = node.outputs[0]
    if not any(fixed):
        if len(net.shape(first)) != len(net.shape(second)):
            raise NotInNcnn("its inputs have different ranks")
        net.layer("BinaryOp", node, {0: number}, inputs=2)
        return
    data, other = (second, first) if fixed[0] else (first, second)
    if fixed[0]:
        number = reverse
    value, shape = scalar(other), net.shape(top)
    bottom = net.blob(data)
    if value is not None and net.shape(data) == shape:
        settings: dict[int, Value] = {0: number, 1: 1, 2: value}
        net.add("BinaryOp", layer_name(node), [bottom], [net.made(top)], settings)
        return
    values = np.asarray(array(other), np.float32)
    wide = (1,) * (len(shape) + 1 - values.ndim) + values.shape
    if len(wide) != len(shape) + 1 or wide[0] != 1 or len(net.shape(data)) != len(shape):
        raise NotInNcnn(f"its constant of shape {values.shape} adds an axis")
    held = net.temporary(other.name)
    settings = dims(wide[1:])
    net.add("MemoryData", f"{layer_name(node)}.constant", [], [held], settings, [values])
    net.add("BinaryOp", layer_name(node), [bottom, held], [net.made(top)], {0: number})


def _simple(
    kind: str,
    settings: Callable[[Network, gs.Node], dict[int, Value]] = lambda net, node: {},
    inputs: int | None = 1,
) -> Translator:
    """An operator that one layer computes from its first `inputs` inputs (None: all)."""
    return lambda net, node: net.layer(kind, node, settings(net, node), inputs=inputs)


def _bounds(net: Network, node: gs.Node) -> dict[int, Value]:
    _, low, high = inputs_of(node, 3)
    ends = [node.attrs.get("min", scalar(low)), node.attrs.get("max", scalar(high))]
    if (low is not None and ends[0] is None) or (high is not None and ends[1] is None):
        raise NotInNcnn("its bounds are computed at run time")
    largest = float(np.finfo(np.float32).max)
    return {
        0: -largest if ends[0] is None else float(ends[0]),
        1: largest if ends[1] is None else float(ends[1]),
    }


def _hard(net: Network, node: gs.Node) -> dict[int, Value]:
    alpha = node.attrs.get("alpha", 1 / 6 if node.op == "HardSwish" else 0.2)
    return {0: float(alpha), 1: float(node.attrs.get("beta", 0.5))}


def _along(net: Network, node: gs.Node, default: int) -> int:
    """The axis of a node, counted without the batch."""
    axis = int(node.attrs.get("axis", default))
    rank = len(net.shape(node.inputs[0])) + 1
    axis += rank if axis < 0 else 0
    if axis == 0:
        raise NotInNcnn("it works along the batch")
    return axis - 1


def _softmax(net: Network, node: gs.Node) -> dict[int, Value]:
    axis = _along(net, node, -1 if net.model.opset >= 13 else 1)
    if net.model.opset < 13 and axis != len(net.shape(node.inputs[0])) - 1:
        raise NotInNcnn("before opset 13 it normalises all axes from the given one to the last")
    return {0: axis, 1: 1}


def _shaped(net: Network, node: gs.Node) -> None:
    bottom, shape = net.blob(node.inputs[0]), net.shape(node.outputs[0])
    net.reshape(layer_name(node), bottom, shape, net.made(node.outputs[0]))


def _order(net: Network, node: gs.Node) -> dict[int, Value]:
    rank = len(net.shape(node.inputs[0])) + 1
    perm = integers(node, "perm", list(reversed(range(rank))))
    if perm[0] != 0:
        raise NotInNcnn("it moves the batch")
    order = tuple(p - 1 for p in perm[1:])
    return {0: ORDERS[order] if len(order) == 3 else int(order == (1, 0))}


def _pool(net: Network, node: gs.Node) -> None:
    kernel = tuple(integers(node, "kernel_shape", []))
    shape = net.shape(node.inputs[0])
    if node.attrs.get("ceil_mode", 0) or len(kernel) + 1 != len(shape) or len(node.outputs) > 1:
        raise NotInNcnn("only pools that round down, over 1 or 2 axes, are written")
    strides, dilations, pads = window(node, kernel)
    if dilations != [1, 1]:
        raise NotInNcnn("it is dilated")
    kernel = (1, *kernel) if len(kernel) == 1 else kernel
    settings: dict[int, Value] = {0: int(node.op == "AveragePool"), 1: kernel[1], 11: kernel[0]}
    settings |= {2: strides[1], 12: strides[0], 3: pads[1], 13: pads[0], 14: pads[3], 15: pads[2]}
    settings |= {5: 1, 6: int(node.attrs.get("count_include_pad", 0))}
    bottom = plane(net, node, net.blob(node.inputs[0]), shape)
    top, finish = result(net, node)
    net.add("Pooling", layer_name(node), [bottom], [top], settings)
    finish()


def _global_pool(net: Network, node: gs.Node) -> None:
    shape = net.shape(node.inputs[0])
    bottom = plane(net, node, net.blob(node.inputs[0]), shape)
    flat = net.temporary(f"{node.outputs[0].name}.flat")
    average = int(node.op == "GlobalAveragePool")
    net.add("Pooling", layer_name(node), [bottom], [flat], {0: average, 4: 1})
    top = net.made(node.outputs[0])
    net.reshape(f"{layer_name(node)}.shape", flat, net.shape(node.outputs[0]), top)


def _layer_norm(net: Network, node: gs.Node) -> None:
    x, gain, shift = inputs_of(node, 3)
    assert x is not None
    shape = net.shape(x)
    if _along(net, node, -1) != len(shape) - 1 or len(node.outputs) > 1:
        raise NotInNcnn("it normalises more than the last axis")
    scale = np.ones(shape[-1], np.float32) if gain is None else net.weight(gain)[0]
    offset = np.zeros(shape[-1], np.float32) if shift is None else net.weight(shift)[0]
    settings: dict[int, Value] = {0: shape[-1], 1: float(node.attrs.get("epsilon", 1e-5)), 2: 1}
    net.layer("LayerNorm", node, settings, [scale, offset])


def _prelu(net: Network, node: gs.Node) -> None:
    slope = net.weight(node.inputs[1])[0].reshape(-1)
    shape = net.shape(node.inputs[0])
    if slope.size not in (1, shape[0]):
        raise NotInNcnn("its slope is neither one number nor one per channel")
    net.layer("PReLU", node, {0: slope.size}, [slope])


def _factors(net: Network, node: gs.Node) -> dict[int, Value]:
    before, after = net.shape(node.inputs[0]), net.shape(node.outputs[0])
    whole = len(before) == 3 and all(b % a == 0 for a, b in zip(before, after, strict=True))
    mode = node.attrs.get("mode", "nearest")
    rule = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    # With integer factors every rule except aligned corners gives floor(i / factor).
    floors = rule == "asymmetric" and node.attrs.get("nearest_mode", "floor") == "floor"
    halves = rule in ("half_pixel", "pytorch_half_pixel")
    if not whole or mode != "nearest" or not (floors or halves) or before[0] != after[0]:
        raise NotInNcnn("only nearest neighbour with integer factors is supported")
    return {0: 1, 1: after[1] / before[1], 2: after[2] / before[2], 3: after[1], 4: after[2]}


TRANSLATORS: dict[str, Translator] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Gemm": linear,
    "MatMul": linear,
    **dict.fromkeys(ARITHMETIC, _arithmetic),
    "Relu": _simple("ReLU"),
    "LeakyRelu": _simple("ReLU", lambda net, node: {0: float(node.attrs.get("alpha", 0.01))}),
    "Clip": _simple("Clip", _bounds),
    "Sigmoid": _simple("Sigmoid"),
    "Tanh": _simple("TanH"),
    "HardSwish": _simple("HardSwish", _hard),
    "HardSigmoid": _simple("HardSigmoid", _hard),
    "Softmax": _simple("Softmax", _softmax),
    "Concat": _simple("Concat", lambda net, node: {0: _along(net, node, 1)}, inputs=None),
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout"), _shaped),
    "Transpose": _simple("Permute", _order),
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "LayerNormalization": _layer_norm,
    "PRelu": _prelu,
    "Resize": _simple("Interp", _factors),
}
"""The operators that are written."""
