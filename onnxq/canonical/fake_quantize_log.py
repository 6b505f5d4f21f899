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
FakeQuantize, the op is a model-local function that a stock onnxruntime runs.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import onnx_graphsurgeon as gs
from onnx import FunctionProto, TensorProto

from onnxq.canonical.fake_quantize import DOMAIN, parsed
from onnxq.edit import constant, describe, new_node
from onnxq.errors import PassError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparams import Array

OP = "FakeQuantizeLog"
FAKE_QUANTIZE_LOG = f"{DOMAIN}::{OP}"

MIN_OPSET = 15  # CastLike
_TINY = float(np.finfo(np.float64).tiny)
_NUMBERS = {"zero": 0.0, "one": 1.0, "two": 2.0, "fifteen": 15.0, "sixteen": 16.0, "most": 127.0}
_NUMBERS |= {"octave": math.log(2), "tiny": _TINY}


@functools.cache
def function(opset: int) -> FunctionProto:
    """The body for models of `opset`."""
    numbers = "\n".join(
        f"{name} = Constant <value = double {name} {{{value!r}}}> ()"
        for name, value in _NUMBERS.items()
    )
    text = f"""
    {OP} (x, data_max) => (y) {{
        {numbers}
        wide = Cast <to = {TensorProto.DOUBLE}> (x)
        reach = Cast <to = {TensorProto.DOUBLE}> (data_max)
        {_code("reach", "top")}
        base = Sub (top, most)
        # 0 lies on neither side: its logarithm is not taken.
        absolute = Abs (wide)
        magnitude = Max (absolute, tiny)
        {_code("magnitude", "place")}
        code = Sub (place, base)
        {_level("zero", "up")}
        {_level("one", "down")}
        lower = Neg (down)
        {_threshold("sixteen", "least")}
        {_threshold("fifteen", "least_down")}
        most_down = Neg (least_down)
        positive = Greater (wide, least)
        negative = Less (wide, most_down)
        rest = Where (negative, lower, zero)
        result = Where (positive, up, rest)
        y = CastLike (result, x)
    }}"""
    doc = "Round to powers of 2^(1/16) and back; see onnxq.canonical.fake_quantize_log."
    return parsed(opset, text, doc)


def _code(of: str, out: str) -> str:
    """out = R(16 * log2 of)."""
    return f"""
        {out}_ln = Log ({of})
        {out}_log2 = Div ({out}_ln, octave)
        {out}_16 = Mul (sixteen, {out}_log2)
        {out} = Round ({out}_16)"""


def _power(out: str) -> str:
    """out = 2^(out_16 / 16)."""
    return f"""
        {out}_exponent = Div ({out}_16, sixteen)
        {out} = Pow (two, {out}_exponent)"""


def _level(least: str, out: str) -> str:
    """out = 2^((clamp(code, least, 127) + Z) / 16)."""
    return f"""
        {out}_code = Clip (code, {least}, most)
        {out}_16 = Add ({out}_code, base){_power(out)}"""


def _threshold(below: str, out: str) -> str:
    """out = 2^((Z - below) / 16)."""
    return f"{out}_16 = Sub (base, {below}){_power(out)}"


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
    magnitude = np.maximum(np.abs(wide), _TINY)
    code = np.rint(16 * np.log2(magnitude)) - base
    up = 2 ** ((np.clip(code, 0, 127) + base) / 16)
    down = -(2 ** ((np.clip(code, 1, 127) + base) / 16))
    positive, negative = wide > 2 ** ((base - 16) / 16), wide < -(2 ** ((base - 15) / 16))
    return np.asarray(np.where(positive, up, np.where(negative, down, 0.0)).astype(x.dtype))
