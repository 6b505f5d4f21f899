"""Whether a tensor comes from codes, and whether it becomes codes, as onnxruntime looks at it."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import is_quantizer
from onnxq.edit import producer, users
from onnxq.operators.op_kind import kind_of
from onnxq.operators.placement import MOVES

_INSIDE = MOVES | {"Relu", "Clip"}
"""Operators that onnxruntime looks through on its way to a quantizer."""


def comes_from_codes(tensor: gs.Tensor) -> bool:
    """Whether a quantizer makes `tensor`, maybe with operators between that only move values."""
    node = producer(tensor)
    while node is not None and kind_of(node) in MOVES:
        tensor = node.inputs[0]
        node = producer(tensor)
    return node is not None and is_quantizer(node)


def becomes_codes(tensor: gs.Tensor) -> bool:
    """Whether a quantizer reads `tensor`, maybe after an activation function."""
    waiting = [tensor]
    while waiting:
        for node, index in users(waiting.pop()):
            if is_quantizer(node):
                return True
            if index == 0 and kind_of(node) in _INSIDE:
                waiting += node.outputs
    return False


__all__ = ["becomes_codes", "comes_from_codes"]
