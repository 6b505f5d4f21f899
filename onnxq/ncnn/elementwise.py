"""Operators that compute each element from the elements at the same place.

ncnn multiplies blobs of different ranks by rules of its own, so all operands get the same rank
first: axes of size 1 in front, as ONNX reads a smaller shape.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of
from onnxq.graph.constants import scalar
from onnxq.ncnn.network import Network, NotInNcnn, dims, layer_name
from onnxq.ncnn.program import Value

Translator = Callable[[Network, gs.Node], None]

ARITHMETIC = {"Add": (0, 0), "Sub": (1, 7), "Mul": (2, 2), "Div": (3, 8)} | {
    "Max": (4, 4),
    "Min": (5, 5),
}
"""BinaryOp's numbers, for a op b and for b op a."""
UNARY = {"Abs": 0, "Neg": 1, "Floor": 2, "Ceil": 3, "Sqrt": 5, "Exp": 7, "Log": 8} | {
    "Sin": 9,
    "Cos": 10,
    "Reciprocal": 15,
}
"""UnaryOp's numbers."""
SQUARE = 4
"""UnaryOp's number for x * x."""


def arithmetic(net: Network, node: gs.Node) -> None:
    """Two operands, or several of a Max, Min or Sum, taken one after the other."""
    operands = list(node.inputs)
    fixed = [t for t in operands if net.constant(t) is not None]
    if len(fixed) == len(operands):
        raise NotInNcnn("all its inputs are constants; 'fold-constants' computes it")
    op = "Add" if node.op == "Sum" else node.op
    shape = net.shape(node.outputs[0])
    if len(operands) == 1:
        net.reshape(layer_name(node), net.blob(operands[0]), shape, net.made(node.outputs[0]))
        return
    number, reverse = ARITHMETIC[op]
    first, *others = operands
    if net.constant(first) is not None:  # only the second operand may be a number in ncnn
        at = next(i for i, t in enumerate(others) if net.constant(t) is None)
        first, others[at] = others[at], first
        number = reverse
    blob = _ranked(net, node, first, len(shape))
    for at, other in enumerate(others):
        is_last = at == len(others) - 1
        tensor = node.outputs[0]
        made = net.made(tensor) if is_last else net.temporary(f"{tensor.name}.{at}")
        value = _number(net, other)
        settings: dict[int, Value] = {0: number}
        bottoms = [blob]
        if value is not None and (at or net.shape(first) == shape):
            settings |= {1: 1, 2: value}
        else:
            bottoms.append(_ranked(net, node, other, len(shape)))
        net.add("BinaryOp", layer_name(node), bottoms, [made], settings)
        blob = made


def _number(net: Network, tensor: gs.Tensor) -> float | None:
    """The value of a constant with one element."""
    values = net.constant(tensor)
    return float(values.reshape(())) if values is not None and values.size == 1 else None


def _ranked(net: Network, node: gs.Node, tensor: gs.Tensor, rank: int) -> str:
    """A blob of a constant or an activation with `rank` axes after the batch."""
    values = net.constant(tensor)
    if values is None:
        shape, blob = net.shape(tensor), net.blob(tensor)
        if len(shape) == rank:
            return blob
        wide = net.temporary(f"{blob}.wide")
        # The first axis of the smaller one is its batch of 1, so axes of 1 come behind it.
        net.reshape(f"{layer_name(node)}.wide", blob, (1,) * (rank - len(shape)) + shape, wide)
        return wide
    whole = (1,) * (rank + 1 - values.ndim) + values.shape
    if len(whole) != rank + 1 or whole[0] != 1:
        raise NotInNcnn(f"its constant of shape {values.shape} adds an axis or a batch")
    held = net.temporary(tensor.name)
    settings = dims(whole[1:])
    net.add("MemoryData", f"{layer_name(node)}.constant", [], [held], settings, [values])
    return held


def power(net: Network, node: gs.Node) -> None:
    """Squares and roots; ncnn's general power has no values for negative numbers."""
    exponent = _number(net, node.inputs[1])
    numbers = {2.0: SQUARE, 0.5: UNARY["Sqrt"], -1.0: UNARY["Reciprocal"]}
    if exponent not in numbers:
        raise NotInNcnn(
            f"its exponent is {'computed' if exponent is None else exponent}, not 2, 0.5 or -1",
            "write it as products",
        )
    bottom, top = net.blob(node.inputs[0]), net.made(node.outputs[0])
    net.add("UnaryOp", layer_name(node), [bottom], [top], {0: numbers[exponent]})


def simple(
    kind: str, settings: Callable[[Network, gs.Node], dict[int, Value]] | None = None
) -> Translator:
    """An operator that one layer with one input computes."""

    def translate(net: Network, node: gs.Node) -> None:
        params = {} if settings is None else settings(net, node)
        bottom = net.blob(node.inputs[0])
        net.add(kind, layer_name(node), [bottom], [net.made(node.outputs[0])], params)

    return translate


def bounds(net: Network, node: gs.Node) -> dict[int, Value]:
    """The ends of a Clip."""
    _, low, high = inputs_of(node, 3)
    ends = [node.attrs.get("min", scalar(low)), node.attrs.get("max", scalar(high))]
    if (low is not None and ends[0] is None) or (high is not None and ends[1] is None):
        raise NotInNcnn("its bounds are computed at run time", "write it with constant bounds")
    largest = float(np.finfo(np.float32).max)
    return {
        0: -largest if ends[0] is None else float(ends[0]),
        1: largest if ends[1] is None else float(ends[1]),
    }


def hard(net: Network, node: gs.Node) -> dict[int, Value]:
    """The line of HardSigmoid and HardSwish."""
    names = ("alpha", "beta")
    default = (1 / 6, 0.5) if node.op == "HardSwish" else (0.2, 0.5)
    alpha, beta = (float(node.attrs.get(k, d)) for k, d in zip(names, default, strict=True))
    return {0: alpha, 1: beta}


def alpha(default: float) -> Callable[[Network, gs.Node], dict[int, Value]]:
    """One factor: the slope of LeakyRelu, the height of Elu."""
    return lambda net, node: {0: float(node.attrs.get("alpha", default))}


def gelu(net: Network, node: gs.Node) -> dict[int, Value]:
    """Whether it is the approximation by tanh."""
    return {0: int(node.attrs.get("approximate", "none") == "tanh")}


def prelu(net: Network, node: gs.Node) -> None:
    """One slope, or one per channel."""
    slope, shape = net.real(node.inputs[1]), net.shape(node.inputs[0])
    whole = (1,) * (len(shape) + 1 - slope.ndim) + slope.shape
    if slope.size != 1 and whole != (1, shape[0], *(1,) * (len(shape) - 1)):
        raise NotInNcnn(
            f"its slopes of shape {slope.shape} are neither one number nor one per channel",
            "write it as Relu(x) - slope * Relu(-x)",
        )
    bottom, top = net.blob(node.inputs[0]), net.made(node.outputs[0])
    net.add("PReLU", layer_name(node), [bottom], [top], {0: slope.size}, [slope.reshape(-1)])
