"""Move activation codes between signed and unsigned types, without changing a value.

    int8  -> uint8     q + 128, z + 128, the range alike
    uint8 -> int8      q - 128, z - 128, the range alike

Towards unsigned, a tensor that is never negative (after Relu, Sigmoid, Clip from 0 ...) uses no
code below its zero point; its codes are counted from there instead, so that the zero point is
the lowest code. Then a quantizer clamps just as Relu does, and runtimes fuse Conv + Relu. Files
that hold a number of bits and no bounds need `whole`: there a zero point of 135 stays, since only
0..120 would be left of 0..255.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, is_fake_quantize, params_of, set_params
from onnxq.edit import inputs_of, producer
from onnxq.graph import Model
from onnxq.graph.constants import array, is_constant, scalar
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams
from onnxq.quant.qtype import qtype

_NON_NEGATIVE = {"Relu", "Sigmoid", "Softmax", "Abs", "Exp", "HardSigmoid", "Softplus"}
_KEEPS_SIGN = {
    *("Identity", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "MaxPool"),
    *("GlobalMaxPool", "GlobalAveragePool", "AveragePool", "DepthToSpace", "SpaceToDepth"),
}
_COMBINES = {"Add", "Mul", "Concat", "Max"}


@dataclass(frozen=True)
class RetypeActivations(Pass):
    """Store activations as uint8 (zero point lowest after Relu) or int8; values stay the same."""

    name: ClassVar[str] = "retype-activations"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    to: Literal["uint8", "int8"] = "uint8"
    whole: bool = False
    """Count from the zero point only where what is left are all codes of a number of bits."""

    def run(self, model: Model, trace: Trace) -> None:
        signs: dict[int, bool] = {}
        for node in model.nodes(FAKE_QUANTIZE):
            if is_constant(node.inputs[0]):
                continue
            params = params_of(node)
            if params.qtype.floating:
                trace.skip(node, f"its codes are {params.qtype}, which {self.to} does not hold")
                continue
            if params.qtype.bits > 8:
                trace.skip(node, f"its codes are {params.qtype}, {self.to} has 8 bits")
                continue
            new = self._retyped(params, node, signs)
            if new is not None:
                set_params(model, node, new)
                trace.rewrote(node, f"{params.qtype} zero point {_z(params)} -> {_z(new)}")

    def _retyped(self, params: QParams, node: gs.Node, signs: dict[int, bool]) -> QParams | None:
        kind = qtype(self.to)
        assert params.lo is not None and params.hi is not None
        shift = {(True, False): 128, (False, True): -128}.get((params.qtype.signed, kind.signed), 0)
        lo, hi, zero = params.lo + shift, params.hi + shift, params.zero_point + shift
        if (
            not kind.signed
            and zero.size == 1
            and lo < int(zero) < hi
            and not (self.whole and (hi - int(zero)) & (hi - int(zero) + 1))
            and non_negative(node.inputs[0], signs)
        ):
            lo, hi, zero = 0, hi - int(zero), np.zeros_like(zero)
        if shift == 0 and (lo, hi) == (params.lo, params.hi):
            return None
        return params.with_(qtype=kind, lo=lo, hi=hi, zero_point=zero)


def non_negative(tensor: gs.Tensor, known: dict[int, bool]) -> bool:
    """Whether the graph shows that `tensor` has no value below zero; answers are kept in `known`.

    Iterative, since a chain of additions may be longer than Python's stack is deep.
    """
    stack = [tensor]
    while stack:
        current = stack[-1]
        if id(current) in known:
            stack.pop()
            continue
        needed = _sign_decided_by(current)
        if isinstance(needed, bool):
            known[id(current)] = needed
            continue
        open_ = [t for t in needed if id(t) not in known]
        if open_:
            # Marked while open: a cycle cannot occur in a valid graph.
            stack += open_
        else:
            known[id(current)] = all(known[id(t)] for t in needed)
    return known[id(tensor)]


def _sign_decided_by(tensor: gs.Tensor) -> bool | list[gs.Tensor]:
    """Whether `tensor` is non-negative, or the tensors that must be for it to be so."""
    value = array(tensor)
    if value is not None:
        return bool(value.size and np.all(value >= 0))
    node = producer(tensor)
    if node is None:
        return False
    if is_fake_quantize(node):  # zero lies on the grid, so signs are kept
        return [node.inputs[0]]
    if node.domain not in (None, "", "ai.onnx"):
        return False
    if node.op in _NON_NEGATIVE:
        return True
    if node.op == "Clip":
        low = node.attrs.get("min")
        if low is None and len(node.inputs) > 1:
            low = scalar(inputs_of(node, 3)[1])
        return low is not None and low >= 0
    if node.op in _KEEPS_SIGN:
        return [node.inputs[0]]
    if node.op in _COMBINES:
        return list(node.inputs)
    return False


def _z(params: QParams) -> str:
    zero = params.zero_point.reshape(-1)
    return str(zero[0]) if zero.size == 1 else f"{zero.min()}..{zero.max()}"
