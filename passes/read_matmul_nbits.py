"""onnxruntime's MatMulNBits and GatherBlockQuantized to the canonical form.

    MatMulNBits(a, B, s, z, bias)           w -> FakeQuantize per block -> MatMul(a, .) -> Add(bias)
    GatherBlockQuantized(data, i, s, z)     w -> FakeQuantize per block -> Gather(., i)

B holds unsigned codes of 2, 4 or 8 bits, packed, for w of shape (N, K): a block is `block_size`
codes along K with one scale and one zero point (2^(bits-1) where none is given). The weight of the
MatMul is its transpose, with blocks along axis 0.

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
from onnxq.dialects.node_rewrite import Declined, attempt
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
from onnxq.graph.constants import array
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.quant.qtypes import QTYPES, QType, qtype
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, QUANT_TYPE, metadata

MATMUL = "com.microsoft::MatMulNBits"
GATHER = "com.microsoft::GatherBlockQuantized"
_FLOATS = (np.dtype(np.float32), np.dtype(np.float16))


class _Weight(NamedTuple):
    """Stored codes, laid out like the weight, and how to read them."""

    codes: Array
    scale: Array
    zero: Array
    kind: QType
    axis: int
    block: int
    transposed: bool


@dataclass(frozen=True)
class ReadMatmulNbits(Pass):
    """Read MatMulNBits and GatherBlockQuantized as block FakeQuantize + MatMul or Gather."""

    name: ClassVar[str] = "read-matmul-nbits"
    dialect: ClassVar[str] = "MatMulNBits"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        done: dict[tuple[object, ...], gs.Tensor] = {}
        for node in model.nodes(MATMUL, GATHER):
            attempt(node, trace, partial(_read, node, model, trace, done))
        if trace.rewrites:
            drop_domains(model, "com.microsoft")


def _read(
    node: gs.Node, model: Model, trace: Trace, done: dict[tuple[object, ...], gs.Tensor]
) -> str:
    """Rewrite one node; says what its weight became."""
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
    count, columns = _attribute(node, "K"), _attribute(node, "N")
    block, bits = _attribute(node, "block_size"), int(node.attrs.get("bits", 4))
    if bits not in BITS:
        raise Declined(f"its codes have {bits} bits, not 2, 4 or 8")
    if int(node.attrs.get("weight_prepacked", 0)):
        raise Declined("its weight is stored in the layout of one kind of GPU")
    if inputs_of(node, 5)[4] is not None:
        raise Declined("it has a group index (g_idx), which reorders its blocks")
    blocks = -(-count // block)
    packed = _stored(node, 1, "weight")
    blob = block * bits // 8
    _check(node, packed, (columns, blocks, blob), "weight")
    codes = unpack(packed.reshape(columns, blocks, blob), bits, block)
    scale = _stored(node, 2, "scale")
    _check(node, scale, (columns, blocks), "scale")
    zero = np.full((columns, blocks), 1 << (bits - 1))
    if inputs_of(node, 4)[3] is not None:
        given = _stored(node, 3, "zero point")
        if given.dtype == np.uint8:
            row = -(-blocks * bits // 8)
            _check(node, given, (columns, row), "zero point")
            zero = unpack(given.reshape(columns, row), bits, blocks)
        else:
            _check(node, given, (columns, blocks), "zero point")
            zero = _whole(given.reshape(columns, blocks))
    return _Weight(
        codes.reshape(columns, -1)[:, :count].T,
        scale.reshape(columns, blocks).T,
        zero.T,
        qtype(f"uint{bits}"),
        0,
        block,
        True,
    )


def _gather(node: gs.Node) -> _Weight:
    data, scale = _stored(node, 0, "data"), _stored(node, 2, "scale")
    given = _stored(node, 3, "zero point") if inputs_of(node, 4)[3] is not None else None
    block = int(node.attrs.get("block_size", 128))
    axis = int(node.attrs.get("quantize_axis", 1))
    axis += data.ndim if axis < 0 else 0
    if data.dtype == np.uint8:
        bits = int(node.attrs.get("bits", 4))
        if bits not in BITS:
            raise Declined(f"its codes have {bits} bits, not 2, 4 or 8")
        codes = unpack(data, bits, data.shape[-1] * 8 // bits)
        zero = np.full(scale.shape, 1 << (bits - 1))
        if given is not None:
            zero = unpack(given, bits, scale.shape[-1])
        kind = qtype(f"uint{bits}")
    elif data.dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        codes, kind = data, qtype(data.dtype)
        zero = np.zeros(scale.shape, np.int64) if given is None else given
    else:
        raise Declined(f"its codes are {data.dtype}, not integers")
    return _Weight(codes, scale, zero, kind, axis, block, False)


def _stored(node: gs.Node, index: int, what: str) -> Array:
    tensor = inputs_of(node, index + 1)[index]
    if tensor is None:
        raise QParamsError(f"it has no {what}", fix="export the model again")
    value = array(tensor)
    if value is None:
        raise Declined(f"its {what} '{tensor.name}' is computed at run time")
    if what == "scale" and value.dtype not in _FLOATS:
        raise Declined(f"its scale is {value.dtype}")
    return value


def _attribute(node: gs.Node, name: str) -> int:
    value = int(node.attrs.get(name, 0))
    if value < 1:
        raise QParamsError(f"its attribute {name} is {value}", fix="export the model again")
    return value


def _check(node: gs.Node, value: Array, shape: tuple[int, ...], what: str) -> None:
    """Older files have the same bytes in fewer dimensions, so only their number must fit."""
    if value.size != np.prod(shape):
        raise QParamsError(
            f"its {what} '{node.inputs[1].name}' has shape {list(value.shape)}, not {list(shape)}"
            if what == "weight"
            else f"its {what} has shape {list(value.shape)}, not {list(shape)}",
            fix="check K, N, bits and block_size against the stored weight",
        )


def _whole(zero: Array) -> Array:
    odd = zero[zero != np.rint(zero)]
    if odd.size:
        raise Declined(f"its zero point {float(odd.flat[0])} is not an integer")
    return zero.astype(np.int64)


# -- what it becomes --------------------------------------------------------------------------


def _quantized(
    node: gs.Node, weight: _Weight, model: Model, done: dict[tuple[object, ...], gs.Tensor]
) -> gs.Tensor:
    """What a FakeQuantize makes of the float weight; one for all nodes that share the codes."""
    stored = node.inputs[1] if weight.transposed else node.inputs[0]
    parts = [t for t in inputs_of(node, 4) if t is not None][0 if not weight.transposed else 1 :]
    if not weight.transposed:
        del parts[1]  # the indices
    said = metadata(node)
    key = (*map(id, parts), weight.axis, weight.block, id(node.owner), *sorted(said.items()))
    known = done.get(key)
    if known is not None:
        return known
    codes, params = _params(stored.name, weight)
    params = _as_said(params, said, codes)
    offset = params.qtype.lo - weight.kind.lo  # a signed type counts the same codes from -2^(b-1)
    codes = codes + offset
    floats = params.dequantize(codes).astype(weight.scale.dtype)
    suffix = f".{weight.kind}"  # as to-matmul-nbits names stored codes
    name = stored.name
    base = name.removesuffix(suffix) if name.endswith(suffix) else f"{name}.float"
    real = constant(model, base, floats)
    result = variable(model, f"{base}.quantized", like=real)
    fake_quantize.make(
        model,
        real,
        result,
        params.with_(tensor=real.name),
        node,
        name=f"{base}.fake_quantize",
        dtype=weight.scale.dtype,
    )
    done[key] = result
    return result


def _params(name: str, weight: _Weight) -> tuple[Array, QParams]:
    """Codes and parameters with positive scales."""
    codes, zero = weight.codes.astype(np.int64), weight.zero.astype(np.int64)
    scale = weight.scale.astype(np.float32)
    params = QParams(
        name,
        weight.kind,
        np.where(scale == 0, np.float32(1), np.abs(scale)),
        zero,
        axis=weight.axis,
        block=weight.block,
        role=Role.WEIGHT,
    )
    ends = weight.kind.lo + weight.kind.hi
    negative = scale < 0
    spots = params.with_(zero_point=zero).broadcast(codes.shape)[1]
    empty = _each(params, scale == 0, codes.shape)
    codes = np.where(empty, spots, codes)
    mirrored = params.with_(zero_point=np.where(negative, ends - zero, zero))
    return np.where(_each(params, negative, codes.shape), ends - codes, codes), mirrored


def _each(params: QParams, blocks: Array, shape: tuple[int, ...]) -> Array:
    """A property of blocks as one of codes."""
    low = params.qtype.lo
    marked = params.with_(zero_point=blocks.astype(np.int64) + low)
    return np.asarray(marked.broadcast(shape)[1] != low)


def _as_said(params: QParams, said: dict[str, str], codes: Array) -> QParams:
    """The type and range that metadata tells, where the codes are of that type and in that range.

    MatMulNBits has unsigned codes only and no narrow ranges.
    """
    kind = QTYPES.get(said.get(QUANT_TYPE, ""))
    if kind is None or kind.floating or kind.bits != params.qtype.bits:
        return params
    offset = kind.lo - params.qtype.lo
    try:
        lo, hi = int(said[QUANT_MIN]), int(said[QUANT_MAX])
        told = params.with_(qtype=kind, lo=lo, hi=hi, zero_point=params.zero_point + offset)
    except (KeyError, ValueError, QParamsError):
        return params  # about something else, or no longer true
    low, high = codes.min(initial=lo - offset), codes.max(initial=lo - offset)
    return told if lo <= low + offset and high + offset <= hi else params


def _rewrite(node: gs.Node, weight: gs.Tensor, model: Model) -> None:
    out = node.outputs[0]
    name = node.name or out.name
    if node.op == "GatherBlockQuantized":
        indices, axis = node.inputs[1], int(node.attrs.get("gather_axis", 0))
        replace_by_node(node, "Gather", [weight, indices], model, {"axis": axis})
        return
    data, bias = node.inputs[0], inputs_of(node, 6)[5]
    if bias is None:
        replace_by_node(node, "MatMul", [data, weight], model)
        return
    remove(node, model)
    product = variable(model, f"{out.name}.product", like=out)
    new_node(model, "MatMul", [data, weight], [product], name=name, instead_of=node)
    new_node(model, "Add", [product, bias], [out], name=f"{name}.bias", instead_of=node)
