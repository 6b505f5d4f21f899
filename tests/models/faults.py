"""Faults put into the middle of a QDQ file, one at a time: what a proof must find."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper


class Broken:
    """A copy of a file, to break: the layer in its middle, and the quantizer before that."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(proto)
        self._nodes = self.proto.graph.node
        self._stored = {t.name: t for t in self.proto.graph.initializer}
        self._producers = {name: node for node in self._nodes for name in node.output}
        layers = [node for node in self._nodes if self._codes(node) is not None]
        self.layer = layers[len(layers) // 2]
        weights = self._codes(self.layer)
        assert weights is not None
        self.weights = weights

    def _codes(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """The DequantizeLinear of the stored weights of a layer that reads quantized values."""
        if node.op_type not in ("Conv", "Gemm", "MatMul"):
            return None
        before = [self._producers.get(name) for name in node.input[:2]]
        if any(maker is None or maker.op_type != "DequantizeLinear" for maker in before):
            return None
        weights = before[1]
        return weights if weights is not None and weights.input[0] in self._stored else None

    def value(self, name: str) -> np.ndarray:
        """A constant."""
        return numpy_helper.to_array(self._stored[name])

    def replace(self, node: onnx.NodeProto, at: int, value: np.ndarray) -> None:
        """Give one input of a node a constant of its own."""
        name = f"{node.output[0]}.broken.{at}"
        self.proto.graph.initializer.append(numpy_helper.from_array(value, name))
        node.input[at] = name

    def quantizer(self) -> list[onnx.NodeProto]:
        """The quantizer before the layer: QuantizeLinear, and all DequantizeLinear after it."""
        codes = self._producers[self.layer.input[0]].input[0]
        while self._producers[codes].op_type != "QuantizeLinear":
            codes = self._producers[codes].input[0]
        readers = (n for n in self._nodes if n.op_type == "DequantizeLinear")
        return [self._producers[codes], *(n for n in readers if n.input[0] == codes)]

    def biases(self) -> list[tuple[onnx.NodeProto, int]]:
        """Where biases of some size are added."""
        found = []
        for node in self._nodes:
            at = {"Conv": 2, "Gemm": 2, "Add": 0}.get(node.op_type, len(node.input))
            places = range(at, len(node.input))
            constants = [i for i in places if node.input[i] in self._stored]
            found += [(node, i) for i in constants if np.abs(self.value(node.input[i])).max() > 0.1]
        return found


def _scale(file: Broken) -> None:
    for node in file.quantizer():
        scale = file.value(node.input[1])
        file.replace(node, 1, (scale * np.float32(1.02)).astype(scale.dtype))


def _channel_scale(file: Broken) -> None:
    scale = file.value(file.weights.input[1]).copy()
    scale.reshape(-1)[scale.size // 2] *= np.float32(1.02)
    file.replace(file.weights, 1, scale)


def _zero_point(file: Broken) -> None:
    for node in file.quantizer():
        zero = file.value(node.input[2])
        file.replace(node, 2, np.asarray(zero + (1 if zero < 255 else -1), zero.dtype))


def _bias(file: Broken) -> None:
    biases = file.biases()
    node, at = biases[len(biases) // 2]
    file.replace(node, at, np.zeros_like(file.value(node.input[at])))


def _channels(file: Broken) -> None:
    axis = next((a.i for a in file.weights.attribute if a.name == "axis"), 0)
    codes = file.value(file.weights.input[0])
    order = np.arange(codes.shape[axis])
    order[:2] = 1, 0
    file.replace(file.weights, 0, np.ascontiguousarray(codes.take(order, axis)))


def within_reach(proto: onnx.ModelProto) -> set[str]:
    """The tensors that a fault changes until their values are rounded to codes, and these."""
    changed: set[str] = set()
    rounded: set[str] = set()
    for node in proto.graph.node:  # in the order of the computation
        names = set(node.input)
        if any(".broken." in name for name in names) or changed & names:
            (rounded if node.op_type == "QuantizeLinear" else changed).update(node.output)
        elif rounded & names and node.op_type == "DequantizeLinear":
            rounded.update(node.output)
    return changed | rounded


FAULTS: dict[str, Callable[[Broken], None]] = {
    "one scale 2 % off": _scale,
    "one scale of one channel 2 % off": _channel_scale,
    "one zero point off by one": _zero_point,
    "one bias dropped": _bias,
    "one channel swapped": _channels,
}
"""The faults by name."""


def broken(proto: onnx.ModelProto, fault: str) -> onnx.ModelProto:
    """A copy of a file with one fault."""
    file = Broken(proto)
    FAULTS[fault](file)
    return file.proto
