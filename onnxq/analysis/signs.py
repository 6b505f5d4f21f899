"""Tensors that are never negative, as far as the operators that produce them show it.

A result is never negative if its operator makes no negative numbers (Relu, Softplus ...), or if the
operator keeps signs and nothing it reads is negative. Quantizers keep signs: zero lies on their
grids.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import is_quantizer
from onnxq.edit import inputs_of, producer
from onnxq.graph.constants import array, scalar
from onnxq.operators.op_kind import kind_of
from onnxq.operators.traits import KEEPS_SIGN, NEVER_NEGATIVE, SEVERAL


class Signs:
    """The signs of the tensors of one graph, each determined once."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}

    def never_negative(self, tensor: gs.Tensor) -> bool:
        """Whether the graph shows that `tensor` has no value below zero.

        Iterative, since a chain of additions may be longer than Python's stack is deep.
        """
        known = self._known
        stack = [tensor]
        while stack:
            current = stack[-1]
            needed = known[id(current)] if id(current) in known else _decided_by(current)
            if isinstance(needed, bool):
                known[id(stack.pop())] = needed
            elif unknown := [t for t in needed if id(t) not in known]:
                stack += unknown
            else:
                known[id(current)] = all(known[id(t)] for t in needed)
        return known[id(tensor)]


def _decided_by(tensor: gs.Tensor) -> bool | list[gs.Tensor]:
    """Whether `tensor` is never negative, or the tensors that must be so for it to be."""
    value = array(tensor)
    if value is not None:
        return bool(value.size and np.all(value >= 0))
    node = producer(tensor)
    if node is None:
        return False
    if is_quantizer(node):
        return [node.inputs[0]]
    kind = kind_of(node)
    if kind == "Clip":
        low = node.attrs.get("min", scalar(inputs_of(node, 2)[1]))
        return low is not None and low >= 0
    if kind in NEVER_NEGATIVE:
        return True
    if kind not in KEEPS_SIGN or (kind == "Resize" and _overshoots(node)):
        return False
    return list(node.inputs) if kind in SEVERAL else [node.inputs[0]]


def _overshoots(resize: gs.Node) -> bool:
    """Whether a Resize may make values below those it reads."""
    border = float(resize.attrs.get("extrapolation_value", 0.0))
    return resize.attrs.get("mode") == "cubic" or border < 0
