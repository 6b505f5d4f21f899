"""Values that are known without running the model: constants, and results computed from them."""

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
"""Most nodes with several inputs that are followed, so that the search from a tensor that is not
constant ends early; `fold-constants` folds constants that need more."""


def array(tensor: gs.Tensor | None) -> Array | None:
    """The value of a constant tensor, read-only; None if it is only known at run time.

    Sees through Constant nodes and operators that move or convert constants, since exporters put
    casts and layout changes after weights.
    """
    return _value(tensor, MOVING)


def computed(tensor: gs.Tensor | None) -> Array | None:
    """`array`, also of small constants that are computed: for scales, zero points and bounds.

    To passes a weight that is computed is a result of nodes, not a constant.
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
    """The value of a node's output; each node on the way is evaluated once."""
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
                # Computed inputs are evaluated first: they show whether values must be read at all.
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


_TYPES = {"value_float": np.float32, "value_int": np.int64, "value_string": np.object_}
_TYPES |= {f"{key}s": dtype for key, dtype in _TYPES.items()}


def constant_value(node: gs.Node) -> Array | None:
    """The value of a Constant node, in the type ONNX gives it (value_float is float32)."""
    for key, value in node.attrs.items():
        if key == "value" and isinstance(value, gs.Constant):
            return values_of(value)
        if key in _TYPES:
            return np.asarray(value, _TYPES[key])
        if key == "sparse_value" and isinstance(value, AttributeProto):
            return SparseStoredValues(value.sparse_tensor).load()
    return None
