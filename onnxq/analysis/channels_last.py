"""What operators do to a layout: which do not care, and what they say about axes.

Let y = f(T x) with T a Transpose of permutation p, so that axis i of T x is axis p[i] of x. An
operator that works element by element, or along axes that it names, computes

    f(T x) = T f'(x)

where f' names axis p[i] instead of i, and where constants beside x are transposed back. `moved`
makes f'; it gives None where f cares about the layout (convolutions, reshapes) or where
what it does about axes is only known at run time.
"""

from __future__ import annotations

from collections.abc import Callable
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
_REDUCING = frozenset({"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"})


@dataclass
class Moved:
    """The operator for the other layout: what changes about it."""

    data: list[int]
    """The inputs that come in the layout."""
    attrs: dict[str, Any] = field(default_factory=dict)
    constants: dict[int, Array] = field(default_factory=dict)
    """Inputs that become other constants."""


def moved(node: gs.Node, perm: tuple[int, ...], opset: int) -> Moved | None:
    """How `node`, which reads what `perm` made, computes in front of it; None: it cannot."""
    if is_fake_quantize(node):
        return _quantizer(node, perm)
    if domain_of(node):
        return None
    if node.op in _SINGLE:
        return Moved([0])
    if node.op in _JOINED:
        return _joined(node, perm)
    rule = _RULES.get(node.op)
    return None if rule is None else rule(node, perm, opset)


def ignores_layout(node: gs.Node) -> bool:
    """Whether the operator may be one that `moved` moves."""
    if is_fake_quantize(node):
        return True
    return not domain_of(node) and (node.op in _SINGLE or node.op in _JOINED or node.op in _RULES)


def _quantizer(node: gs.Node, perm: tuple[int, ...]) -> Moved | None:
    shape = node.inputs[1].shape
    if shape is None or node.attrs.get("block_size"):
        return None
    if not len(shape) or list(shape) == [1]:
        return Moved([0])
    axis = int(node.attrs.get("axis", 1))
    return Moved([0], {"axis": perm[axis]}) if _has(axis, perm) else None


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
    """Softmax and its like, along one axis since opset 13, before that over all from there on."""
    axis = int(node.attrs.get("axis", -1))
    return Moved([0], {"axis": perm[axis]}) if opset >= 13 and _has(axis, perm) else None


def _concat(node: gs.Node, perm: tuple[int, ...], opset: int) -> Moved | None:
    axis = int(node.attrs.get("axis", 1))
    if not _has(axis, perm) or any(is_constant(t) for t in node.inputs):
        return None
    return Moved(list(range(len(node.inputs))), {"axis": perm[axis]})


def _split(node: gs.Node, perm: tuple[int, ...], opset: int) -> Moved | None:
    axis = int(node.attrs.get("axis", 0))
    return Moved([0], {"axis": perm[axis]}) if _has(axis, perm) else None


def _pad(node: gs.Node, perm: tuple[int, ...], opset: int) -> Moved | None:
    _, given, _, axes = inputs_of(node, 4)
    pads = array(given)
    if pads is None or axes is not None or pads.size != 2 * len(perm):
        return None
    new = np.empty_like(pads)
    for half in (0, len(perm)):
        for i, axis in enumerate(perm):
            new[half + axis] = pads[half + i]
    return Moved([0], constants={1: new})


def _reduce(node: gs.Node, perm: tuple[int, ...], opset: int) -> Moved | None:
    if not node.attrs.get("keepdims", 1):
        return None
    if "axes" in node.attrs:
        axes = [int(a) for a in node.attrs["axes"]]
        return Moved([0], {"axes": [perm[a] for a in axes]}) if _has_all(axes, perm) else None
    given = inputs_of(node, 2)[1]
    if given is None:
        return Moved([0])  # all axes or none
    values = array(given)
    if values is None or not _has_all(axes := [int(a) for a in values], perm):
        return None
    return Moved([0], constants={1: np.array([perm[a] for a in axes], np.int64)})


def _has(axis: int, perm: tuple[int, ...]) -> bool:
    return -len(perm) <= axis < len(perm)


def _has_all(axes: list[int], perm: tuple[int, ...]) -> bool:
    return all(_has(a, perm) for a in axes)


def _scaled(node: gs.Node, perm: tuple[int, ...], opset: int) -> Moved | None:
    return _quantizer(node, perm)


_Rule = Callable[[gs.Node, tuple[int, ...], int], Moved | None]

_RULES: dict[str, _Rule] = {
    "Softmax": _along,
    "LogSoftmax": _along,
    "Concat": _concat,
    "Split": _split,
    "Pad": _pad,
    "QuantizeLinear": _scaled,
    "DequantizeLinear": _scaled,
    **dict.fromkeys(_REDUCING, _reduce),
}
