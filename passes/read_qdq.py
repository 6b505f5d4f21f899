"""QuantizeLinear/DequantizeLinear to the canonical form.

    x -> Q(s, z) -> DQ(s, z)                  FakeQuantize(x, s, z) over all codes of the type
    x -> Q(s, z) -> Clip(lo, hi) -> DQ(s, z)  FakeQuantize with quant_min = lo, quant_max = hi
    codes -> [Clip] -> DQ(s, z)               constant codes: float weight + FakeQuantize; int32
                                              codes (a bias): float constant + a row of the table

A DequantizeLinear with other parameters than its QuantizeLinear requantizes; it stays as it is,
with the reason, and so does whatever is not 8-, 16-, 4- or 2-bit integer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np
import onnx_graphsurgeon as gs

from onnxq import fake_quantize
from onnxq.constants import array
from onnxq.edit import constant, describe, inputs_of, producer, remove, replace
from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.match import match, op
from onnxq.pass_ import Pass, Trace
from onnxq.qparams import Array, QParams, Role
from onnxq.qtype import QType, qtype
from onnxq.tensors import numpy_dtype

QUANTIZE = ("QuantizeLinear", "com.microsoft::QuantizeLinear")
DEQUANTIZE = ("DequantizeLinear", "com.microsoft::DequantizeLinear")


class _Unreadable(Exception):
    """Why a Q/DQ node cannot be expressed in the canonical form."""


@dataclass(frozen=True)
class ReadQdq(Pass):
    """Read QuantizeLinear/DequantizeLinear (also Q-Clip-DQ and stored codes) as FakeQuantize."""

    name: ClassVar[str] = "read-qdq"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        done: dict[tuple[int, ...], gs.Tensor] = {}
        for node in model.nodes(*DEQUANTIZE):
            label = describe(node)  # reading takes the node apart
            try:
                detail = _read(node, model, done)
            except _Unreadable as reason:
                trace.skip(node, str(reason))
            except QParamsError as error:
                raise QParamsError(f"{describe(node)}: {error.what}", fix=error.fix) from error
            else:
                trace.rewrote(label, detail)
        for node in model.nodes(*QUANTIZE):
            needed = _codes_read_by(node.outputs[0], model)
            if needed:
                trace.skip(node, needed)


_Q, _DQ = "|".join(QUANTIZE), "|".join(DEQUANTIZE)
_PAIR = op(_Q, "x", "scale", "?zero_point")["quantize"]
_FORMS = (
    op(_DQ, _PAIR, "?s", "?z"),
    op(_DQ, op("Clip", _PAIR, "?lo", "?hi")["clip"], "?s", "?z"),
    op(_DQ, op("Clip", "codes", "?lo", "?hi")["clip"], "?s", "?z"),
    op(_DQ, "codes", "?s", "?z"),
)
"""The forms a dequantization takes, the longest first where one contains another."""


def _read(node: gs.Node, model: Model, done: dict[tuple[int, ...], gs.Tensor]) -> str:
    """Rewrite one DequantizeLinear; says what it became."""
    form = next(found for found in (match(node, pattern) for pattern in _FORMS) if found)
    clip, quantize = form.nodes.get("clip"), form.nodes.get("quantize")
    if quantize is None:
        codes = form["codes"]
        stored = array(codes)
        if stored is None:
            maker = producer(codes)
            raise _Unreadable(
                f"its codes '{codes.name}' come from "
                + ("a graph input" if maker is None else describe(maker))
            )
        return _read_stored(node, codes, stored, clip, model)
    x = form["x"]
    params = _params(quantize, x.name)
    if params.qtype.bits > 16:
        raise _Unreadable(f"its codes are {params.qtype}, not integers of 2 to 16 bits")
    if not params.same_grid(_params(node, x.name, params.qtype.dtype)):
        raise _Unreadable("it has other parameters than its QuantizeLinear (requantization)")
    params = _clipped(params, clip)
    # One Q may feed many DQ: those of one graph become readers of one FakeQuantize.
    key = (id(quantize), id(clip), id(node.owner))
    known = done.get(key)
    if known is not None:
        replace(node, known, model)
        return "joined to the quantizer of the same codes"
    out, owner = node.outputs[0], node.owner
    name = node.name or quantize.name or f"{out.name}.fake_quantize"
    remove(node, model)
    fake_quantize.make(model, x, out, params, owner, name=name, dtype=_dtype(quantize))
    done[key] = out
    return f"{params.qtype}" + (" per channel" if params.axis is not None else "")


def _read_stored(
    node: gs.Node, codes: gs.Tensor, stored: Array, clip: gs.Node | None, model: Model
) -> str:
    values, params = _mirrored(node, codes.name, stored)
    params = _clipped(params, clip)
    out = node.outputs[0]
    if clip is not None:
        values = np.clip(values, params.lo, params.hi)
    dtype = _dtype(node)
    floats = params.dequantize(values).astype(dtype)
    suffix = f".{params.qtype}"  # as to-qdq names stored codes
    base = codes.name.removesuffix(suffix) if codes.name.endswith(suffix) else f"{codes.name}.float"
    real = constant(model, base, floats)
    if params.qtype.bits == 32:
        # A bias is not simulated by a node: its codes are far finer than its consumer's steps.
        replace(node, real, model)
        model.qparams.add(params.with_(tensor=real.name, role=Role.BIAS))
        return "int32 bias"
    name = node.name or f"{out.name}.fake_quantize"
    owner = node.owner
    remove(node, model)
    fake_quantize.make(model, real, out, params, owner, name=name, dtype=dtype)
    return f"stored {params.qtype} codes"


def _mirrored(node: gs.Node, name: str, stored: Array) -> tuple[Array, QParams]:
    """Codes and parameters of stored codes, with positive scales.

    Some tools let the largest weight have the code -8 and the scale its sign. Counting from the
    other end, q' = lo + hi - q and z' = lo + hi - z, gives (q' - z') * |s| = (q - z) * s exactly.
    """
    codes = stored.astype(np.int64)
    scale = array(node.inputs[1])
    if scale is None or producer(node.inputs[0], "Clip") or not np.any(scale < 0):
        return codes, _params(node, name, stored.dtype)
    params = _params(node, name, stored.dtype, np.abs(scale))
    assert params.lo is not None and params.hi is not None
    negative = (scale < 0).reshape(params.scale.shape)
    ends = params.lo + params.hi
    flipped = params.with_(
        zero_point=np.where(negative, ends - params.zero_point, params.zero_point)
    )
    mask = params.with_(zero_point=negative.astype(np.int64)).broadcast(codes.shape)[1]
    return np.where(mask != 0, ends - codes, codes), flipped


def _params(
    node: gs.Node,
    tensor: str,
    codes: np.dtype[np.generic] | None = None,
    magnitude: Array | None = None,
) -> QParams:
    """The parameters of a Q or DQ node over the whole range of its type."""
    _, scale_tensor, zero_tensor = inputs_of(node, 3)
    scale, zero_point = array(scale_tensor), array(zero_tensor)
    if scale is None:
        raise _Unreadable(
            "it has no scale"
            if scale_tensor is None
            else (f"its scale '{scale_tensor.name}' is computed at run time")
        )
    if zero_tensor is not None and zero_point is None:
        raise _Unreadable(f"its zero point '{zero_tensor.name}' is computed at run time")
    if scale.dtype == ml_dtypes.bfloat16:
        raise _Unreadable("its scale is bfloat16")
    if zero_point is not None:
        kind = _integer(zero_point.dtype)
    elif codes is not None:
        kind = _integer(codes)
    else:
        kind = _default_type(node)
    block = int(node.attrs.get("block_size", 0))
    axis = None if scale.size == 1 and not block else int(node.attrs.get("axis", 1))
    return QParams(
        tensor=tensor,
        qtype=kind,
        scale=(scale if magnitude is None else magnitude).astype(np.float32),
        zero_point=np.zeros((), np.int64) if zero_point is None else zero_point.astype(np.int64),
        axis=axis,
        block=block,
    )


def _dtype(node: gs.Node) -> np.dtype[np.generic]:
    """The float type a Q reads or a DQ makes: that of its scale, however far behind it lies."""
    scale = array(node.inputs[1])
    assert scale is not None
    return scale.dtype


def _default_type(quantize: gs.Node) -> QType:
    """The code type of a QuantizeLinear without zero point."""
    stated = quantize.attrs.get("output_dtype", 0)
    return _integer(numpy_dtype(stated)) if stated else qtype("uint8")


def _integer(dtype: np.dtype[np.generic]) -> QType:
    try:
        return qtype(dtype)
    except QParamsError:
        raise _Unreadable(f"its codes are {dtype}, not integers of 2 to 16 bits") from None


def _clipped(params: QParams, clip: gs.Node | None) -> QParams:
    if clip is None:
        return params
    _, low, high = inputs_of(clip, 3)
    assert params.lo is not None and params.hi is not None
    bounds = [params.lo, params.hi]
    for index, bound in enumerate((low, high)):
        if bound is None:
            continue
        value = array(bound)
        if value is None:
            raise _Unreadable(f"the bound '{bound.name}' of its Clip is computed at run time")
        bounds[index] = int(value.reshape(()))
    lo, hi = max(params.lo, bounds[0]), min(params.hi, bounds[1])
    return params.with_(lo=lo, hi=hi)


def _codes_read_by(codes: gs.Tensor, model: Model) -> str:
    """Why a QuantizeLinear stays; '' where nobody needs its codes any more."""
    if model.is_output(codes):
        return "its codes leave the graph"
    for reader in codes.outputs:
        out = reader.outputs[0]
        if reader.op != "Clip" or out.outputs or model.is_output(out):
            return f"its codes are read by {describe(reader)}"
    return ""


__all__ = ["DEQUANTIZE", "QUANTIZE", "ReadQdq"]
