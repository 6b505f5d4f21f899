"""onnxruntime's MatMulNBits and GatherBlockQuantized to the canonical form.

    MatMulNBits(a, B, s, z, bias)           w -> FakeQuantize per block -> MatMul(a, .) -> Add(bias)
    GatherBlockQuantized(data, i, s, z)     w -> FakeQuantize per block -> Gather(., i)

B contains unsigned codes of 2, 4 or 8 bits, packed, for w of shape (N, K): a block is `block_size`
codes along K with one scale and one zero point (2^(bits-1) by default). The weight of the MatMul is
its transpose, with blocks along axis 0.

A negative scale (its largest weight has the lowest code) counts from the other end: with
q' = hi - q and z' = hi - z, (q' - z') * |s| = (q - z) * s exactly. A block of scale 0 is all zero:
code z at any scale. Fractional zero points have no integer grid and are declined.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import ml_dtypes
import numpy as np
import onnx_graphsurgeon as gs

from onnxq.arrays.bit_packing import BITS, unpack
from onnxq.canonical import fake_quantize
from onnxq.dialects.node_rewrite import Declined, attempt, known_input
from onnxq.edit import (
    constant,
    describe,
    drop_domains,
    inputs_of,
    new_node,
    remove,
    replace_by_node,
    variable,
)
from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams
from onnxq.quant.qtypes import QTYPES, QType, qtype
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, QUANT_TYPE, metadata

MATMUL = "com.microsoft::MatMulNBits"
GATHER = "com.microsoft::GatherBlockQuantized"
_Done = dict[tuple[object, ...], gs.Tensor]
"""Quantized weights by what they are made of."""


class _Weight(NamedTuple):
    """Stored codes, laid out like the weight, and their grid."""

    tensor: gs.Tensor
    """The tensor that contains the codes."""
    codes: Array
    scale: Array
    zero: Array
    kind: QType
    axis: int
    block: int


@dataclass(frozen=True)
class ReadMatmulNbits(Pass):
    """Read MatMulNBits and GatherBlockQuantized as block FakeQuantize + MatMul or Gather."""

    name: ClassVar[str] = "read-matmul-nbits"
    dialect: ClassVar[str] = "MatMulNBits"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        done: _Done = {}
        for node in model.nodes(MATMUL, GATHER):
            attempt(node, trace, partial(_read, node, model, trace, done))
        if trace.rewrites:
            drop_domains(model, "com.microsoft")


def _read(node: gs.Node, model: Model, trace: Trace, done: _Done) -> str:
    """Rewrite one node. Returns what its weight became."""
    weight = _matmul(node) if node.op == "MatMulNBits" else _gather(node)
    quantized = _quantized(node, weight, model, done)
    if int(node.attrs.get("accuracy_level", 0)) == 4:
        trace.note(
            f"{describe(node)}: accuracy_level 4 lets runtimes compute in int8; read as a float "
            "product"
        )
    _rewrite(node, quantized, model)
    return f"{weight.kind} in blocks of {weight.block}"


# -- what is stored ---------------------------------------------------------------------------


def _matmul(node: gs.Node) -> _Weight:
    count, columns, block = (_attribute(node, name) for name in ("K", "N", "block_size"))
    bits = _bits(node)
    if int(node.attrs.get("weight_prepacked", 0)):
        raise Declined("its weight is stored in the layout of one kind of GPU")
    if inputs_of(node, 5)[4] is not None:
        raise Declined("it has a group index (g_idx), which reorders its blocks")
    blocks = -(-count // block)
    packed = _stored(node, 1, "weight", (columns, blocks, block * bits // 8))
    codes = unpack(packed, bits, block).reshape(columns, -1)[:, :count]
    scale = _stored(node, 2, "scale", (columns, blocks))
    zero = np.full((columns, blocks), 1 << (bits - 1))
    if inputs_of(node, 4)[3] is not None:
        if known_input(node, 3, "zero point")[1].dtype == np.uint8:
            packed = _stored(node, 3, "zero point", (columns, -(-blocks * bits // 8)))
            zero = unpack(packed, bits, blocks)
        else:
            zero = _whole(_stored(node, 3, "zero point", (columns, blocks)))
    return _Weight(node.inputs[1], codes.T, scale.T, zero.T, qtype(f"uint{bits}"), 0, block)


def _gather(node: gs.Node) -> _Weight:
    tensor, codes = known_input(node, 0, "data")
    scale = known_input(node, 2, "scale")[1]
    zero = None if inputs_of(node, 4)[3] is None else known_input(node, 3, "zero point")[1]
    block = int(node.attrs.get("block_size", 128))
    axis = int(node.attrs.get("quantize_axis", 1))
    axis += codes.ndim if axis < 0 else 0
    if codes.dtype == np.uint8:
        bits = _bits(node)
        kind, default = qtype(f"uint{bits}"), 1 << (bits - 1)
        codes = unpack(codes, bits, codes.shape[-1] * 8 // bits)
        zero = None if zero is None else unpack(zero, bits, scale.shape[-1])
    elif codes.dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        kind, default = qtype(codes.dtype), 0
    else:
        raise Declined(f"its codes are {codes.dtype}, not integers")
    zero = np.full(scale.shape, default) if zero is None else zero
    return _Weight(tensor, codes, scale, zero, kind, axis, block)


def _attribute(node: gs.Node, name: str) -> int:
    value = int(node.attrs.get(name, 0))
    if value < 1:
        raise QParamsError(f"its attribute {name} is {value}", fix="export the model again")
    return value


def _bits(node: gs.Node) -> int:
    bits = int(node.attrs.get("bits", 4))
    if bits not in BITS:
        raise Declined(f"its codes have {bits} bits, not 2, 4 or 8")
    return bits


def _stored(node: gs.Node, index: int, what: str, shape: tuple[int, ...]) -> Array:
    """A constant input in `shape`; older files store the same bytes in fewer dimensions."""
    tensor, value = known_input(node, index, what)
    if value.size != np.prod(shape):
        raise QParamsError(
            f"its {what} '{tensor.name}' has shape {list(value.shape)}, not {list(shape)}",
            fix="check K, N, bits and block_size against the stored weight",
        )
    return value.reshape(shape)


def _whole(zero: Array) -> Array:
    odd = zero[zero != np.rint(zero)]
    if odd.size:
        raise Declined(f"its zero point {float(odd.flat[0])} is not an integer")
    return zero.astype(np.int64)


# -- what it becomes --------------------------------------------------------------------------


def _quantized(node: gs.Node, weight: _Weight, model: Model, done: _Done) -> gs.Tensor:
    """The output of a FakeQuantize of the float weight: one for all nodes that share the codes."""
    if weight.scale.dtype not in (np.float32, np.float16):
        raise Declined(f"its scale is {weight.scale.dtype}")
    stated = metadata(node)
    parts = (weight.tensor, *inputs_of(node, 4)[2:])
    key = (*map(id, parts), weight.axis, weight.block, id(node.owner), *sorted(stated.items()))
    if key in done:
        return done[key]
    name = weight.tensor.name
    codes, params = _params(name, weight)
    params = _as_stated(params, stated, codes)
    offset = params.qtype.lo - weight.kind.lo  # a signed type counts the same codes from -2^(b-1)
    floats = params.dequantize(codes + offset).astype(weight.scale.dtype)
    suffix = f".{weight.kind}"  # as to-matmul-nbits names stored codes
    base = name.removesuffix(suffix) if name.endswith(suffix) else f"{name}.float"
    real = constant(model, base, floats)
    result = done[key] = variable(model, f"{base}.quantized", like=real)
    name, params = f"{base}.fake_quantize", params.with_(tensor=real.name)
    fake_quantize.make(model, real, result, params, node, name=name, dtype=real.dtype)
    return result


def _params(name: str, weight: _Weight) -> tuple[Array, QParams]:
    """Codes and parameters with positive scales."""
    codes, zero = weight.codes.astype(np.int64), weight.zero.astype(np.int64)
    scale, kind = weight.scale.astype(np.float32), weight.kind
    positive = np.where(scale == 0, np.float32(1), np.abs(scale))
    params = QParams(name, kind, positive, zero, axis=weight.axis, block=weight.block)
    ends, negative = kind.lo + kind.hi, scale < 0
    shape, whole = codes.shape, (slice(None),) * codes.ndim
    codes = np.where(params.spread(scale == 0, shape, whole), params.broadcast(shape)[1], codes)
    codes = np.where(params.spread(negative, shape, whole), ends - codes, codes)
    return codes, params.with_(zero_point=np.where(negative, ends - zero, zero))


def _as_stated(params: QParams, stated: dict[str, str], codes: Array) -> QParams:
    """The type and range that metadata states, if the codes are of that type and in that range.

    MatMulNBits has unsigned codes only and no narrow ranges.
    """
    kind = QTYPES.get(stated.get(QUANT_TYPE, ""))
    if kind is None or kind.floating or kind.bits != params.qtype.bits:
        return params
    offset = kind.lo - params.qtype.lo
    try:
        lo, hi = int(stated[QUANT_MIN]), int(stated[QUANT_MAX])
        better = params.with_(qtype=kind, lo=lo, hi=hi, zero_point=params.zero_point + offset)
    except (KeyError, ValueError, QParamsError):
        return params  # about something else, or no longer true
    low, high = codes.min(initial=lo - offset), codes.max(initial=lo - offset)
    return better if lo <= low + offset and high + offset <= hi else params


def _rewrite(node: gs.Node, weight: gs.Tensor, model: Model) -> None:
    if node.op == "GatherBlockQuantized":
        axis = int(node.attrs.get("gather_axis", 0))
        replace_by_node(node, "Gather", [weight, node.inputs[1]], model, {"axis": axis})
        return
    out, data, bias = node.outputs[0], node.inputs[0], inputs_of(node, 6)[5]
    name = node.name or out.name
    product = out if bias is None else variable(model, f"{out.name}.product", like=out)
    remove(node, model)
    new_node(model, "MatMul", [data, weight], [product], name=name, instead_of=node)
    if bias is not None:
        new_node(model, "Add", [product, bias], [out], name=f"{name}.bias", instead_of=node)
