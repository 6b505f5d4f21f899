"""What a layer costs, counted: multiplications, and elements that become codes or floats."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from onnxq.calibration.placing import Placing
from onnxq.edit import producer
from onnxq.graph.constants import is_constant

PER_ELEMENT = 20
"""Multiplications that take as long as turning an element into a code, or a code into a float."""
FEW = 4
"""Channels that an output of a convolution reads at most if integers do not make it faster."""


def multiplications(layer: gs.Node) -> int | None:
    """How many products a layer sums for one sample; dimensions without a number count once.

    None if the shapes are not known.
    """
    weight, shape = layer.inputs[1], layer.outputs[0].shape
    if not is_constant(weight) or shape is None:
        return None
    if layer.op == "Conv":
        places = shape[2:]
        if not all(isinstance(size, int) for size in places):
            return None
        return int(math.prod(weight.shape) * math.prod(places))
    rows = [size for size in shape[:-1] if isinstance(size, int)]
    return int(math.prod(weight.shape) * math.prod(rows))


class FloatTime:
    """How much longer a network takes if some of its operators are float.

    The unit is one multiplication. Integers do four in the time of a float one, except in layers
    of few inputs per output, which wait for memory. Where codes and floats meet, every element
    is converted. So a float layer beside others may cost less than nothing.
    """

    def __init__(self, placing: Placing) -> None:
        self.products = {id(node): _gained(node) for node, _ in placing.weights}
        self._meetings: dict[int, list[_Meeting]] = {}
        for place in placing.places:
            ops = frozenset(map(id, place.asked_by))
            makers = {id(producer(s)) for t in place.tensors for s in placing.walk.sources(t)}
            leaves = any(placing.model.is_output(t) for t in place.tensors)
            found = _Meeting(ops, leaves or not ops & makers, sum(map(_elements, place.tensors)))
            for op in ops:
                self._meetings.setdefault(op, []).append(found)

    def more(self, floats: Set[int], new: Set[int]) -> float:
        """The time that float operators cost if others are float already."""
        met = {id(m): m for op in new for m in self._meetings.get(op, ())}.values()
        after = floats | new
        elements = sum(m.elements * (m.converts(after) - m.converts(floats)) for m in met)
        return sum(self.products.get(op, 0.0) for op in new) + PER_ELEMENT * elements

    def beside(self, new: Set[int]) -> set[int]:
        """The operators that share a quantizer with these."""
        return {op for at in new for m in self._meetings.get(at, ()) for op in m.ops} - new


@dataclass(frozen=True)
class _Meeting:
    """A quantizer, and the operators that read or write codes there."""

    ops: frozenset[int]
    at_border: bool
    """Whether floats come in or go out here in any case."""
    elements: int

    def converts(self, floats: Set[int]) -> bool:
        """Whether codes and floats meet here."""
        return bool(self.ops - floats) and (self.at_border or bool(self.ops & floats))


def _gained(layer: gs.Node) -> float:
    """What integers save in a layer; nothing if its shapes are not known."""
    few = layer.op == "Conv" and layer.inputs[1].shape[1] <= FEW
    return 0.0 if few else 0.75 * (multiplications(layer) or 0)


def _elements(tensor: gs.Tensor) -> int:
    return math.prod(size for size in tensor.shape or (0,) if isinstance(size, int))


__all__ = ["FloatTime", "multiplications"]
