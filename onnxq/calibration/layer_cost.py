"""What a layer costs, counted: multiplications, and elements that it reads and writes."""

from __future__ import annotations

import math

import onnx_graphsurgeon as gs

from onnxq.graph.constants import array
from onnxq.operators.op_kind import weight_of

PER_ELEMENT = 20
"""Multiplications that take as long as turning an element into a code, or a code into a float."""


def multiplications(layer: gs.Node) -> int | None:
    """How many products a layer sums for one sample; dimensions without a number count once.

    None if the shapes are not known.
    """
    weight, shape = array(layer.inputs[1]), layer.outputs[0].shape
    if weight is None or shape is None:
        return None
    if layer.op == "Conv":
        places = shape[2:]
        if not all(isinstance(size, int) for size in places):
            return None
        return int(math.prod(weight.shape) * math.prod(places))
    rows = [size for size in shape[:-1] if isinstance(size, int)]
    return math.prod(weight.shape) * math.prod(rows)


def work(node: gs.Node) -> float | None:
    """The time that an operator takes in float, with the change from codes and back."""
    products = multiplications(node) if weight_of(node) is not None else 0
    tensors = [t for t in (*node.inputs, *node.outputs) if array(t) is None]
    if products is None or any(tensor.shape is None for tensor in tensors):
        return None
    elements = (math.prod(d for d in t.shape if isinstance(d, int)) for t in tensors)
    return float(products + PER_ELEMENT * sum(elements))


__all__ = ["multiplications", "work"]
