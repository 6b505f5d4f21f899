"""The float type of a tensor whose declaration does not specify it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.graph import domain_of
from onnxq.storage.importer import bodies
from onnxq.storage.tensors import numpy_dtype

_FLOAT32: np.dtype[Any] = np.dtype(np.float32)
_TYPED_BY = {"Cast": "to", "RandomNormal": "dtype", "RandomUniform": "dtype", "EyeLike": "dtype"}
"""Operators whose result has the type that an attribute specifies."""


class FloatTypes:
    """Element types found by looking upstream; each tensor is visited once.

    An operator's float result has the type of its float inputs, so the nearest declared float
    type among the inputs decides; for If and Loop also the results of their bodies. The default is
    float32.
    """

    def __init__(self) -> None:
        self._known: dict[int, np.dtype[Any]] = {}

    def note(self, tensor: gs.Tensor, dtype: np.dtype[Any]) -> None:
        """Remember the type of a new tensor."""
        self._known[id(tensor)] = dtype

    def of(self, tensor: gs.Tensor) -> np.dtype[Any]:
        """The float type of `tensor`."""
        if tensor.dtype == np.float32:
            return _FLOAT32
        walked: set[int] = set()
        stack = [tensor]
        found: np.dtype[Any] | None = None
        while stack and found is None:
            current = stack.pop()
            found = self._known.get(id(current)) or _declared(current)
            if found is None and id(current) not in walked:
                walked.add(id(current))
                for node in current.inputs:
                    for body in bodies(node):
                        stack.extend(body.outputs)
                    stack.extend(reversed(node.inputs))
        result = found or _FLOAT32
        self._known.update(dict.fromkeys(walked, result))
        return result


def _declared(tensor: gs.Tensor) -> np.dtype[Any] | None:
    """The float type that the tensor or its producer states."""
    dtype: Any = tensor.dtype
    if dtype is None and tensor.inputs:
        node = tensor.inputs[0]
        attribute = "" if domain_of(node) else _TYPED_BY.get(node.op, "")
        if attribute in node.attrs:
            dtype = numpy_dtype(node.attrs[attribute])
    if dtype is None or np.dtype(dtype).kind in "iubOSU":
        return None
    kind: np.dtype[Any] = np.dtype(dtype)
    return kind
