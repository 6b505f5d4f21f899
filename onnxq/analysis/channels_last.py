"""Operators seen from another layout: which do not depend on it, and which name axes.

Let y = f(T x) with T a Transpose of permutation p, so that axis i of T x is axis p[i] of x. An
operator that works element by element, or along axes that it names, computes

    f(T x) = T f'(x)

where f' names axis p[i] instead of i, and where constants beside x are transposed back. `moved`
makes f'. It gives None if f depends on the layout (convolutions, reshapes), or if its axes are only
known at run time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import is_fake_quantize
from onnxq.edit import inputs_of
from onnxq.graph import domain_of
from onnxq.graph.constants import array, is_constant
from onnxq.quant.qparams import Array

_SINGLE = frozenset(
    {
        *(
            "Relu",
            "LeakyRelu",
            "Elu",
            "Selu",
            "Celu",
            "Sigmoid",
            "HardSigmoid",
            "HardSwish",
            "Tanh",
        ),
        *("Softplus", "Softsign", "Gelu", "Mish", "ThresholdedRelu", "Erf", "Exp", "Log", "Sqrt"),
        *("Abs", "Neg", "Floor", "Ceil", "Round", "Sign", "Reciprocal", "Identity", "Cast", "Clip"),
    }
)
_JOINED = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu"})
_ALONG_AXIS = {"Softmax": -1, "LogSoftmax": -1, "Concat": 1, "Split": 0}
"""Operators with one axis, and the axis they have by default."""
_SCALED = frozenset({"QuantizeLinear", "DequantizeLinear"})
_REDUCING = frozenset({"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"})
_MOVABLE = _SINGLE | _JOINED | _ALONG_AXIS.keys() | _SCALED | _REDUCING | {"Pad"}


@dataclass
class Moved:
    """The changes that adapt an operator to the other layout."""

    data: list[int]
    """The inputs that are in the layout."""
    attrs: dict[str, Any] = field(default_factory=dict)
    constants: dict[int, Array] = field(default_factory=dict)
    """New constants for some inputs."""


def moved(node: gs.Node, perm: tuple[int, ...], opset: int) -> Moved | None:
    """The form in which `node`, which reads the result of `perm`, computes before it, or None."""
    if not ignores_layout(node):
        return None
    if is_fake_quantize(node) or node.op in _SCALED:
        return _quantizer(node, perm)
    if node.op in _JOINED:
        return _joined(node, perm)
    if node.op in _ALONG_AXIS:
        return _along(node, perm, opset)
    if node.op in _REDUCING:
        return _reduce(node, perm)
    return _pad(node, perm) if node.op == "Pad" else Moved([0])


def ignores_layout(node: gs.Node) -> bool:
    """Whether the operator may be one that `moved` moves."""
    return is_fake_quantize(node) or (not domain_of(node) and node.op in _MOVABLE)


def _quantizer(node: gs.Node, perm: tuple[int, ...]) -> Moved | None:
    shape = node.inputs[1].shape
    if shape is None or node.attrs.get("block_size"):
        return None
    if not len(shape) or list(shape) == [1]:
        return Moved([0])
    axis = int(node.attrs.get("axis", 1))
    return Moved([0], {"axis": perm[axis]}) if _has([axis], perm) else None


def _joined(node: gs.Node, perm: tuple[int, ...]) -> Moved | None:
    change = Moved([])
    for index, tensor in enumerate(node.inputs):
        value = array(tensor)
        if value is None:
            change.data.append(index)
        elif value.ndim > len(perm):
            return None
        elif value.size > 1:
            whole = value.reshape((1,) * (len(perm) - value.ndim) + value.shape)
            change.constants[index] = np.transpose(whole, np.argsort(perm))
    return change


def _along(node: gs.Node, perm: tuple[int, ...], opset: int) -> Moved | None:
    axis = int(node.attrs.get("axis", _ALONG_AXIS[node.op]))
    # Before opset 13 Softmax and its like ran over all axes from this one on.
    if not _has([axis], perm) or (node.op.endswith("Softmax") and opset < 13):
        return None
    if node.op == "Concat" and any(map(is_constant, node.inputs)):
        return None
    data = list(range(len(node.inputs))) if node.op == "Concat" else [0]
    return Moved(data, {"axis": perm[axis]})


def _pad(node: gs.Node, perm: tuple[int, ...]) -> Moved | None:
    _, given, _, axes = inputs_of(node, 4)
    pads = array(given)
    if pads is None or axes is not None or pads.size != 2 * len(perm):
        return None
    new = np.empty_like(pads)
    new.reshape(2, -1)[:, list(perm)] = pads.reshape(2, -1)
    return Moved([0], constants={1: new})


def _reduce(node: gs.Node, perm: tuple[int, ...]) -> Moved | None:
    stated, given = node.attrs.get("axes"), inputs_of(node, 2)[1]
    if not node.attrs.get("keepdims", 1):
        return None
    if stated is None and given is None:
        return Moved([0])  # all axes or none
    axes = array(given) if stated is None else stated
    if axes is None or not _has(axes, perm):
        return None
    new = [perm[int(axis)] for axis in axes]
    if stated is not None:
        return Moved([0], {"axes": new})
    return Moved([0], constants={1: np.array(new, np.int64)})


def _has(axes: Iterable[int], perm: tuple[int, ...]) -> bool:
    return all(-len(perm) <= axis < len(perm) for axis in axes)
