"""What a layer costs, counted: multiplications, and elements that become codes or floats."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.calibration.placing import Placing
from onnxq.edit import new_node, producer, variable
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.operators.op_kind import kind_of, weight_of
from onnxq.operators.placement import Placement
from onnxq.running.samples import Feed
from onnxq.running.sessions import session

PER_ELEMENT = 20
"""Multiplications that take as long as turning an element into a code, or a code into a float."""
FEW = 4
"""Channels that an output of a convolution reads at most if integers do not make it faster."""


def products_of(model: Model, layers: Sequence[gs.Node], feed: Feed) -> dict[int, int]:
    """How many products each layer sums, by its id; layers in bodies of other nodes have none.

        Conv, Gemm, MatMul     results * inputs of each result
        ConvTranspose          inputs * results of each input

    Sizes are those that the model states, except that of the batch; if some are missing, all are
    those of a sample.
    """
    known = [node for node in layers if node.owner is model.graph and _is_known(node)]
    stated = [_counted(node).shape for node in known]
    if all(shape is not None and _is_stated(shape) for shape in stated):
        sizes = [[d if isinstance(d, int) else 1 for d in shape] for shape in stated]
    else:
        sizes = _seen_sizes(model, [_counted(node).name for node in known], feed)
    return {id(node): _products(node, size) for node, size in zip(known, sizes, strict=True)}


def _is_known(layer: gs.Node) -> bool:
    weight = weight_of(layer)
    return weight is not None and is_constant(weight)


def _counted(layer: gs.Node) -> gs.Tensor:
    """The tensor each of whose elements takes the same number of products."""
    return layer.inputs[0] if layer.op == "ConvTranspose" else layer.outputs[0]


def _is_stated(shape: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in shape[1:])


def _products(layer: gs.Node, size: Sequence[int]) -> int:
    weight = weight_of(layer)
    assert weight is not None
    last = size[-1] if layer.op in ("MatMul", "Gemm") else weight.shape[0]
    return int(math.prod(size) * (math.prod(weight.shape) // (last or 1)))


def _seen_sizes(model: Model, names: Sequence[str], feed: Feed) -> list[list[int]]:
    """The sizes of tensors for one sample."""
    if not names:
        return []
    copy = model.clone()
    tensors = {t.name: t for node in copy.nodes() for t in (*node.inputs, *node.outputs)}
    shapes = []
    for number, name in enumerate(names):
        made = variable(copy, f"onnxq.shape.{number}", like=None)
        made.dtype = np.dtype(np.int64)
        new_node(copy, "Shape", [tensors[name]], [made], name=made.name)
        shapes.append(made)
    copy.graph.outputs = shapes
    copy.refresh()
    seen = session(copy, "shipped").run(feed)
    return [seen[shape.name].tolist() for shape in shapes]


class FloatTime:
    """How much longer a network takes if some of its operators are float.

    The unit is one multiplication. Integers do four in the time of a float one, except in layers
    of few inputs per output, which wait for memory. Where codes and floats meet, every element
    is converted. So a float layer beside others may cost less than nothing.
    """

    def __init__(self, placing: Placing, feed: Feed) -> None:
        layers = [node for node, _ in placing.weights]
        self.counted = products_of(placing.model, layers, feed)
        """The products of each layer."""
        self.products = {id(node): _gained(node) * self.counted.get(id(node), 0) for node in layers}
        self._meetings: dict[int, list[_Meeting]] = {}
        sizes = _elements(placing.model, [t for p in placing.places for t in p.tensors], feed)
        for place in placing.places:
            ops = frozenset(map(id, place.asked_by))
            sources = (s for t in place.tensors for s in placing.walk.sources(t))
            makers = {id(_maker(source, placing.backend.placement)) for source in sources}
            leaves = any(placing.model.is_output(t) for t in place.tensors)
            elements = sum(sizes[id(tensor)] for tensor in place.tensors)
            meeting = _Meeting(ops, leaves or not ops & makers, elements)
            for op in ops:
                self._meetings.setdefault(op, []).append(meeting)

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


def waits_for_memory(layer: gs.Node) -> bool:
    """Whether a layer sums so few products for a result that integers hardly make it faster."""
    return bool(layer.op == "Conv" and layer.inputs[1].shape[1] <= FEW)


def _gained(layer: gs.Node) -> float:
    """The share of the time of a layer that integers save."""
    return 0.0 if waits_for_memory(layer) else 0.75


def _maker(tensor: gs.Tensor, placement: Placement) -> gs.Node | None:
    """What computes a tensor; activation functions run inside the operator before them."""
    node = producer(tensor)
    while node is not None and kind_of(node) in placement.absorbed:
        before = producer(node.inputs[0])
        if before is None or len(node.inputs[0].outputs) > 1:
            break
        node = before
    return node


def _elements(model: Model, tensors: Sequence[gs.Tensor], feed: Feed) -> dict[int, int]:
    """How many elements tensors have, by id: as the model states, or else those of a sample."""
    known = {id(t): _product(t.shape) for t in tensors}
    if all(t.shape is not None and _is_stated(t.shape) for t in tensors):
        return known
    made = {id(t) for node in model.nodes() if node.owner is model.graph for t in node.outputs}
    made.update(map(id, model.graph.inputs))
    seen = [t for t in tensors if id(t) in made]  # those in bodies of other nodes are not seen
    sizes = _seen_sizes(model, [str(t.name) for t in seen], feed)
    return known | {id(t): math.prod(size) for t, size in zip(seen, sizes, strict=True)}


def _product(shape: Sequence[Any] | None) -> int:
    return math.prod(size for size in shape or (0,) if isinstance(size, int))


__all__ = ["PER_ELEMENT", "FloatTime", "products_of", "waits_for_memory"]
