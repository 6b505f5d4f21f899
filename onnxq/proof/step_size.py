"""The quantization step of a tensor, found in the structure of the graph.

A tensor has a step if its values lie on a grid: its producer is DequantizeLinear or FakeQuantize
with a constant scale, or an operator that moves or selects such values. The step is the scale: one
number, or one per channel or block. Codes (the integers after a quantizer) have step 1. Values of
float8 codes lie on no even grid, so they have none. With the step comes the number of bits that the
codes have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxq.operators.traits import MOVES
from onnxq.quant.qparams import Array
from onnxq.quant.qtypes import QTYPES
from onnxq.running.sessions import OpenModel
from onnxq.storage.tensors import StoredValues

# They return values of their first input, or a bound such as Relu's 0.
_SELECTING = MOVES | {"Clip", "Pad", "ReduceMax", "ReduceMin", "Relu"}
_QUANTIZERS = {"QuantizeLinear", "DynamicQuantizeLinear"}
_FLOAT8 = {kind.onnx for kind in QTYPES.values() if kind.floating}
_BITS = {kind.onnx: kind.bits for kind in QTYPES.values()}
_UNCHANGED = {"Identity", "Dropout", "Relu"}  # elementwise: a scale per channel survives them


@dataclass(frozen=True, eq=False)
class StepSize:
    """The scale of a tensor: 0-d, 1-D along `axis`, or one per `block` elements of `axis`."""

    scale: Array
    axis: int = 0
    block: int = 0
    bits: int = 8
    """Bits of the codes, as far as the graph tells."""

    @property
    def largest(self) -> float:
        """The largest step."""
        return float(self.scale.max())

    def along(self, shape: Sequence[int]) -> Array:
        """The steps of a tensor of this shape, ready to broadcast."""
        if self.scale.ndim == 0:
            return self.scale
        axis = self.axis % len(shape)
        if self.block:
            repeated = np.repeat(self.scale, self.block, axis)
            return repeated.take(range(shape[axis]), axis)
        dims = [1] * len(shape)
        dims[axis] = -1
        return self.scale.reshape(dims)


class Steps:
    """Finds the steps of the tensors of one model."""

    def __init__(self, model: OpenModel) -> None:
        graph = model.proto.graph
        self._folder = model.folder
        self._constants = {t.name: t for t in graph.initializer}
        self._producers = {name: node for node in graph.node for name in node.output if name}
        self._found: dict[str, StepSize | None] = {}

    def of(self, name: str) -> StepSize | None:
        """The step of a tensor, or None if its values lie on no known grid."""
        # Iterative: a chain of selecting operators can be longer than Python's stack.
        pending, visited = [name], {name}
        while pending:
            sources = self._sources(pending[-1])
            todo = [s for s in sources if s not in self._found and s not in visited]
            if todo:
                pending.extend(todo)
                visited.update(todo)
            else:
                tensor = pending.pop()
                self._found.setdefault(tensor, self._combine(tensor, sources))
        return self._found[name]

    def _sources(self, name: str) -> list[str]:
        """The tensors whose step this one takes over."""
        node = self._producers.get(name)
        if node is None or not node.input:
            return []
        if node.op_type == "Concat":
            return list(dict.fromkeys(node.input))
        nearest = node.op_type == "Resize" and attribute(node, "mode", b"nearest") == b"nearest"
        return [node.input[0]] if node.op_type in _SELECTING or nearest else []

    def _combine(self, name: str, sources: list[str]) -> StepSize | None:
        node = self._producers.get(name)
        if node is None:
            return None
        if not sources:
            return self._own(node)
        first = self._found.get(sources[0])
        if first is None or (first.scale.ndim and node.op_type not in _UNCHANGED):
            return None
        for other in (self._found.get(s) for s in sources[1:]):
            if other is None or other.scale.ndim or other.scale != first.scale:
                return None
        return first

    def _own(self, node: onnx.NodeProto) -> StepSize | None:
        """The step of a quantizer's output."""
        if node.input and self._has_float8_codes(node):
            return None
        if node.op_type in _QUANTIZERS or node.op_type.startswith("QLinear"):
            return StepSize(np.ones(()))
        fake = (node.domain, node.op_type) == ("onnxq", "FakeQuantize")
        if (node.op_type != "DequantizeLinear" and not fake) or len(node.input) < 2:
            return None
        scale = self.constant(node.input[1])
        if scale is None or not scale.size:
            return None
        scale = scale.astype(np.float64)
        if not np.all(np.isfinite(scale) & (scale > 0)):
            return None
        bits = self._bits(node)
        if scale.size == 1:
            return StepSize(scale.reshape(()), bits=bits)
        return StepSize(scale, attribute(node, "axis", 1), attribute(node, "block_size", 0), bits)

    def _bits(self, node: onnx.NodeProto) -> int:
        """The bits of a quantizer's codes: of its range, or of the type of its zero point."""
        span = attribute(node, "quant_max", None), attribute(node, "quant_min", None)
        if None not in span:
            return int(span[0] - span[1]).bit_length()
        stored = self._constants.get(node.input[2]) if len(node.input) > 2 else None
        return _BITS.get(stored.data_type, 8) if stored is not None else 8

    def _has_float8_codes(self, node: onnx.NodeProto) -> bool:
        """Whether its zero point, or without one its codes, are constants of float8."""
        typed = node.input[2] if len(node.input) > 2 and node.input[2] else node.input[0]
        stored = self._constants.get(typed)
        return stored is not None and stored.data_type in _FLOAT8

    def constant(self, name: str) -> Array | None:
        """The value of a constant: an initializer, a Constant node, or either after a Cast."""
        for _ in range(len(self._producers) + 1):
            if name in self._constants:
                return StoredValues(self._constants[name], self._folder).load()
            node = self._producers.get(name)
            if node is None or not (node.input or node.op_type == "Constant"):
                return None
            if node.op_type == "Constant":
                return _constant_value(node)
            if node.op_type not in ("Identity", "Cast"):
                return None
            name = node.input[0]
        return None


def _constant_value(node: onnx.NodeProto) -> Array | None:
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            return onnx.numpy_helper.to_array(value)
        if isinstance(value, (int, float)):
            return np.asarray(value)
    return None


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of an attribute, or the default."""
    found = (helper.get_attribute_value(a) for a in node.attribute if a.name == name)
    return next(found, default)
