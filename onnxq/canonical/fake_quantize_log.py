"""The logarithmic canonical op: `onnxq::FakeQuantizeLog(x, data_max)`, NNIE's quantizer.

16 values per octave, 8 octaves below the largest magnitude c = data_max:

    Z = R(16 * log2 c) - 127
    x > 2^((Z - 16)/16):    y =  2^((clamp(R(16 * log2 x) - Z, 0, 127) + Z)/16)
    x < -2^((Z - 15)/16):   y = -2^((clamp(R(16 * log2 -x) - Z, 1, 127) + Z)/16)
    else                    y = 0

R rounds half to even. Code 0 of the negative side means 0, hence the clamp at 1. Everything is
computed in float64. ONNX has no log2, so the function body takes ln x / ln 2. Both are off by a
few parts in 10^16, and no float32 has a 16 * log2 within 10^-7 of a tie (2^((k + 1/2)/16) is
irrational): the codes are the same.

Such a grid has no scale and no zero point; its row in a quantization table is a `LogParams`. Like
FakeQuantize it is a model-local function that a stock onnxruntime runs.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import onnx_graphsurgeon as gs
from onnx import FunctionProto, NodeProto, TensorProto, helper

from onnxq.canonical.fake_quantize import DOMAIN
from onnxq.edit import constant, describe, new_node
from onnxq.errors import PassError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparams import Array

OP = "FakeQuantizeLog"
FAKE_QUANTIZE_LOG = f"{DOMAIN}::{OP}"

_MIN_OPSET = 15  # CastLike
_NUMBERS = {
    "zero": 0.0,
    "one": 1.0,
    "two": 2.0,
    "fifteen": 15.0,
    "sixteen": 16.0,
    "most": 127.0,
    "octave": math.log(2),
    "tiny": float(np.finfo(np.float64).tiny),
}


@functools.cache
def function(opset: int) -> FunctionProto:
    """The body for models of `opset` (onnxruntime wants both to agree)."""

    def number(name: str, value: float) -> NodeProto:
        tensor = helper.make_tensor(name, TensorProto.DOUBLE, [], [value])
        return helper.make_node("Constant", [], [name], value=tensor)

    def code(of: str, out: str) -> list[NodeProto]:
        """out = R(16 * log2 of)."""
        return [
            helper.make_node("Log", [of], [f"{out}_ln"]),
            helper.make_node("Div", [f"{out}_ln", "octave"], [f"{out}_log2"]),
            helper.make_node("Mul", ["sixteen", f"{out}_log2"], [f"{out}_16"]),
            helper.make_node("Round", [f"{out}_16"], [out]),
        ]

    def power(of: str, out: str) -> list[NodeProto]:
        """out = 2^(of / 16)."""
        return [
            helper.make_node("Div", [of, "sixteen"], [f"{out}_exponent"]),
            helper.make_node("Pow", ["two", f"{out}_exponent"], [out]),
        ]

    def level(least: str, out: str) -> list[NodeProto]:
        """out = 2^((clamp(code, least, 127) + Z) / 16)."""
        return [
            helper.make_node("Clip", ["code", least, "most"], [f"{out}_code"]),
            helper.make_node("Add", [f"{out}_code", "base"], [f"{out}_16"]),
            *power(f"{out}_16", out),
        ]

    def threshold(below: str, out: str) -> list[NodeProto]:
        """out = 2^((Z - below) / 16)."""
        return [
            helper.make_node("Sub", ["base", below], [f"{out}_16"]),
            *power(f"{out}_16", out),
        ]

    made = helper.make_function(
        DOMAIN,
        OP,
        ["x", "data_max"],
        ["y"],
        [
            *(number(name, value) for name, value in _NUMBERS.items()),
            helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
            helper.make_node("Cast", ["data_max"], ["reach"], to=TensorProto.DOUBLE),
            *code("reach", "top"),
            helper.make_node("Sub", ["top", "most"], ["base"]),
            # Of 0 the logarithm is not taken: it lies on neither side.
            helper.make_node("Abs", ["wide"], ["absolute"]),
            helper.make_node("Max", ["absolute", "tiny"], ["magnitude"]),
            *code("magnitude", "place"),
            helper.make_node("Sub", ["place", "base"], ["code"]),
            *level("zero", "up"),
            *level("one", "down"),
            helper.make_node("Neg", ["down"], ["lower"]),
            *threshold("sixteen", "least"),
            *threshold("fifteen", "least_down"),
            helper.make_node("Neg", ["least_down"], ["most_down"]),
            helper.make_node("Greater", ["wide", "least"], ["positive"]),
            helper.make_node("Less", ["wide", "most_down"], ["negative"]),
            helper.make_node("Where", ["negative", "lower", "zero"], ["rest"]),
            helper.make_node("Where", ["positive", "up", "rest"], ["result"]),
            helper.make_node("CastLike", ["result", "x"], ["y"]),
        ],
        [helper.make_opsetid("", opset)],
    )
    made.doc_string = "Round to powers of 2^(1/16) and back; see onnxq.canonical.fake_quantize_log."
    return made


def needed_opset(nodes: list[gs.Node]) -> int:
    """The lowest opset whose operators the function body needs."""
    return _MIN_OPSET


def make(
    model: Model,
    source: gs.Tensor,
    result: gs.Tensor,
    data_max: float,
    place: gs.Graph | gs.Node,
    *,
    name: str = "",
) -> gs.Node:
    """Add a FakeQuantizeLog that makes `result` from `source`; its constant is its own.

    `place` is the graph it is added to, or the node it replaces.
    """
    base = name or f"{source.name}.fake_quantize_log"
    reach = constant(model, f"{base}.data_max", np.asarray(checked(data_max, source), np.float32))
    where = {"instead_of" if isinstance(place, gs.Node) else "graph": place}
    return new_node(model, FAKE_QUANTIZE_LOG, [source, reach], [result], name=base, **where)


def checked(data_max: float, tensor: gs.Tensor) -> float:
    """`data_max` as a float32, which must be positive and finite; the error names the tensor."""
    return LogParams(tensor.name, data_max).data_max


def is_logarithmic(node: gs.Node | None) -> bool:
    """Whether `node` is the logarithmic op."""
    return node is not None and node.op == OP and node.domain == DOMAIN


def data_max_of(node: gs.Node) -> float:
    """The largest magnitude of a FakeQuantizeLog, validated."""
    value = array(node.inputs[1])
    if value is None or value.size != 1:
        raise PassError(
            f"FakeQuantizeLog {describe(node)}: '{node.inputs[1].name}' is not one constant number",
            fix="run 'fold-constants' first; dynamic quantization is not supported",
        )
    return checked(float(value.reshape(())), node.inputs[0])


def logarithmic(x: Array, data_max: float) -> Array:
    """`x` on the grid whose largest magnitude is `data_max`: the oracle of the op."""
    base = np.rint(16 * np.log2(np.float64(data_max))) - 127
    wide = x.astype(np.float64)
    magnitude = np.maximum(np.abs(wide), _NUMBERS["tiny"])
    code = np.rint(16 * np.log2(magnitude)) - base
    up = 2 ** ((np.clip(code, 0, 127) + base) / 16)
    down = -(2 ** ((np.clip(code, 1, 127) + base) / 16))
    positive, negative = wide > 2 ** ((base - 16) / 16), wide < -(2 ** ((base - 15) / 16))
    return np.asarray(np.where(positive, up, np.where(negative, down, 0.0)).astype(x.dtype))
