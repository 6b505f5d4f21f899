"""A graph being put together from ncnn's layers, and what readers of layers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from onnxq.canonical.fake_quantize import DOMAIN, OP
from onnxq.ncnn.network import CODES
from onnxq.ncnn.program import Layer
from onnxq.quant.qparams import Array

OPSET = 20
"""The first with Gelu."""


class Graph:
    """Nodes so far, and how many axes each blob has, the batch included."""

    def __init__(self) -> None:
        self.proto = GraphProto(name="ncnn")
        self.rank: dict[str, int] = {}
        self._alias: dict[str, str] = {}
        self.codes: dict[str, tuple[str, float]] = {}
        """Blobs of codes: what was rounded, and the stored scale."""

    def name(self, blob: str) -> str:
        """The tensor of a blob."""
        return self._alias.get(blob, blob)

    def alias(self, blob: str, source: str) -> None:
        """Let a blob be another name of one."""
        self._alias[blob], self.rank[blob] = self.name(source), self.rank[source]

    def constant(self, name: str, value: Array) -> str:
        """Add an initializer."""
        self.proto.initializer.append(numpy_helper.from_array(value, name))
        return name

    def node(
        self, op: str, inputs: list[str], output: str | list[str], name: str = "", **attrs: Any
    ) -> None:
        """Add a node."""
        outputs = [output] if isinstance(output, str) else output
        made: NodeProto = helper.make_node(op, inputs, outputs, name, **attrs)
        self.proto.node.append(made)

    def fake(self, source: str, output: str, steps: Array, axis: int | None = None) -> None:
        """Add a quantizer."""
        scale = self.constant(f"{output}.scale", steps.astype(np.float32))
        zero = self.constant(f"{output}.zero_point", np.zeros(steps.shape, np.int8))
        attrs: dict[str, Any] = {"quant_min": CODES[0], "quant_max": CODES[1]}
        if axis is not None:
            attrs["axis"] = axis
        self.node(OP, [source, scale, zero], output, f"{output}.quantizer", domain=DOMAIN, **attrs)


Reader = Callable[[Graph, Layer], None]


def shape_of(layer: Layer) -> list[int]:
    """The shape that a layer states, without the batch."""
    keys = (0, 1, 11, 2) if 11 in layer.params else (0, 1, 2)
    count = sum(key in layer.params for key in keys)
    found = [layer.integer(key) for key in reversed(keys[:count])]
    if not found or min(found) < 1:
        raise layer.error(f"{found} is not a shape")
    return found


def same(op: str, attrs: Callable[[Layer], dict[str, Any]] = lambda layer: {}) -> Reader:
    """A layer that one ONNX operator computes, on blobs of the shape it gives."""

    def translate(graph: Graph, layer: Layer) -> None:
        operands = [graph.name(b) for b in layer.bottoms]
        graph.node(op, operands, layer.tops[0], layer.name, **attrs(layer))
        graph.rank[layer.tops[0]] = graph.rank[layer.bottoms[0]]

    return translate
