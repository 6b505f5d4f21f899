"""Values that are known without running the model: constants, and what lies behind them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_graphsurgeon as gs
from onnx import AttributeProto

from onnxq.graph.constant_folding import MOVING, OPERATORS, Operator, evaluate
from onnxq.quant.qparams import Array
from onnxq.storage.domains import domain_of
from onnxq.storage.tensors import SparseStoredValues, values_of

_MOST_NODES = 16
"""Most nodes with several inputs that are followed: constants that need more are folded by
`fold-constants`, and the search for what is not constant ends early."""


def array(tensor: gs.Tensor | None) -> Array | None:
    """The value of a constant tensor, read-only; None if it is only known at run time.

    Sees through Constant nodes and through what moves or converts constants, since exporters put
    casts and layout changes behind weights.
    """
    return _value(tensor, MOVING)


def computed(tensor: gs.Tensor | None) -> Array | None:
    """`array`, also where small constants are computed: for scales, zero points and bounds.

    A weight that is computed stays what it is to passes, a result of nodes.
    """
    return _value(tensor, OPERATORS)


def _value(tensor: gs.Tensor | None, operators: Mapping[str, Operator]) -> Array | None:
    if tensor is None or not tensor.name:
        return None
    if isinstance(tensor, gs.Constant):
        return _stored(tensor)
    value = _evaluated(tensor, operators)
    if value is not None:
        value = value.view()
        value.setflags(write=False)
    return value


def _stored(tensor: gs.Constant) -> Array | None:
    return None if getattr(tensor, "overridable", False) else values_of(tensor)


def _evaluated(tensor: gs.Tensor, operators: Mapping[str, Operator]) -> Array | None:
    """The value of what a node makes, each node on the way evaluated once."""
    known: dict[int, Array] = {}
    joins = 0
    stack = [tensor]  # not by recursion: chains may be longer than Python's stack
    while stack:
        current = stack[-1]
        if id(current) in known:
            stack.pop()
            continue
        value: Array | None
        node = current.inputs[0] if current.inputs else None
        if isinstance(current, gs.Constant):
            value = _stored(current)
        elif node is None or domain_of(node):
            return None
        elif node.op == "Constant":
            value = constant_value(node)
        elif node.op not in operators or len(node.outputs) != 1:
            return None
        else:
            needed = [t for t in node.inputs if t.name]
            waiting = [t for t in needed if id(t) not in known]
            if waiting:
                joins += len(needed) > 1
                if joins > _MOST_NODES:
                    return None
                # What is computed comes first: it shows whether values must be read at all.
                stack += [t for t in waiting if isinstance(t, gs.Constant)]
                stack += [t for t in waiting if not isinstance(t, gs.Constant)]
                continue
            value = evaluate(node, [known[id(t)] if t.name else None for t in node.inputs])
        if value is None:
            return None
        known[id(current)] = value
    return known[id(tensor)]


def is_constant(tensor: gs.Tensor | None) -> bool:
    """Whether `array` knows the value of `tensor`."""
    if isinstance(tensor, gs.Constant):  # without reading it
        return bool(tensor.name) and not getattr(tensor, "overridable", False)
    return array(tensor) is not None


def scalar(tensor: gs.Tensor | None) -> float | None:
    """The value of a constant with one element."""
    value = array(tensor)
    return float(value.reshape(())) if value is not None and value.size == 1 else None


def constant_value(node: gs.Node) -> Array | None:
    """What a Constant node makes, in the type ONNX gives it (value_float is float32)."""
    for key, value in node.attrs.items():
        if key == "value" and isinstance(value, gs.Constant):
            return values_of(value)
        if key in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if key in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if key in ("value_string", "value_strings"):
            return np.asarray(value, object)
        if key == "sparse_value" and isinstance(value, AttributeProto):
            return SparseStoredValues(value.sparse_tensor).load()
    return None
