"""The parameters of QuantizeLinear and DequantizeLinear nodes, in every form tools write.

These forms are read although ONNX does not allow them, since their meaning is clear:

    stored codes with an int32 zero point            the type of the codes
    int64 codes                                      int32, on coarser scales if they have more
                                                     bits than that
    Q with an int32 zero point (no such type)        the one type in which the file stores codes
                                                     beside int32 zero points; int16 for int64
    scale of shape [1, C, 1, 1]                      one scale per channel, along axis 1
    scale [C, 1, 1] for codes [C, I, h, w]           one scale per channel, along the node's axis
    scale [O, I] for codes [O, I, k], no block_size  one block along the axis that has no scales
    scale [O, I/b, 1] for codes [O, I, k]            blocks along axis 1, the same ones for all k
    scale made by a quantizer from a constant        that constant, quantized
    stored codes with a negative scale               counted from the other end

Q of com.microsoft is the same operator; it had 16 and 4 bits before ONNX did. So are AMD's, in
both names they have had; they divide and round as ONNX does, and know more types of codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.arrays.pieces import Index, assembled, is_large
from onnxq.canonical.quantized_weights import quantized_values
from onnxq.dialects.node_rewrite import Declined
from onnxq.edit import inputs_of
from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.graph.constants import array, computed
from onnxq.operators.traits import DEQUANTIZE, QUANTIZE
from onnxq.quant.qparams import Array, QParams
from onnxq.quant.qtypes import QType, qtype
from onnxq.storage.tensors import Codes, StoredValues, numpy_dtype, parts_of

_FLOATS = (np.dtype(np.float32), np.dtype(np.float16))
_WIDE = (np.dtype(np.int32), np.dtype(np.int64))


def of_quantize(node: gs.Node, tensor: str, wide: QType | None = None) -> QParams:
    """The parameters of a QuantizeLinear; `wide` is the code type if its zero point is int32."""
    zero_point = _zero_point(node)
    if zero_point is None:
        stated = node.attrs.get("output_dtype", 0)
        kind = code_type(numpy_dtype(stated)) if stated else qtype("uint8")
    elif zero_point.dtype not in _WIDE:
        kind = code_type(zero_point.dtype)
    elif wide is not None:
        kind = wide
    else:
        raise QParamsError(
            f"tensor '{tensor}' is quantized with a zero point of type {zero_point.dtype}, which "
            "QuantizeLinear does not support, and no stored codes specify the number of bits",
            fix="export the model again with zero points of type int8, uint8, int16 or uint16",
        )
    if kind.floating and not node.attrs.get("saturate", 1):
        raise Declined(f"its {kind} codes do not saturate (saturate=0)")
    _check_float_type(node, "precision")
    return _params(node, tensor, kind, zero_point, node.inputs[0].shape)


def of_dequantize(
    node: gs.Node, tensor: str, kind: QType, quantized: gs.Tensor | None = None
) -> QParams:
    """The parameters of a DequantizeLinear of codes of type `kind`, made of `quantized`."""
    _check_float_type(node, "output_dtype")
    zero_point = _zero_point(node)
    if zero_point is not None and zero_point.dtype not in (kind.dtype, *_WIDE):
        raise QParamsError(
            f"tensor '{tensor}' has {kind} codes, but their zero point is {zero_point.dtype}",
            fix="give both nodes zero points of one type (without one, QuantizeLinear "
            "produces uint8)",
        )
    shape = (node.inputs[0] if quantized is None else quantized).shape
    return _params(node, tensor, kind, zero_point, shape)


def of_stored(node: gs.Node, name: str, stored: Codes) -> tuple[Codes, QParams]:
    """Codes and parameters of a DequantizeLinear of constant codes, with positive scales.

    Some tools give the largest weight the code -8 and the scale its sign. Counting from the other
    end, q' = lo + hi - q and z' = lo + hi - z, gives (q' - z') * |s| = (q - z) * s exactly.
    """
    _check_float_type(node, "output_dtype")
    kind, codes = _stored_type(stored)
    zero_point = _zero_point(node)
    if zero_point is not None and zero_point.dtype not in (stored.dtype, kind.dtype, *_WIDE):
        raise QParamsError(
            f"tensor '{name}' contains {stored.dtype} codes, but its zero point is "
            f"{zero_point.dtype}",
            fix="give the zero point the type of the codes",
        )
    scale = _scale(node)
    if not np.any(scale < 0):
        return _in_32_bits(codes, _params(node, name, kind, zero_point, stored.shape))
    params = _params(node, name, kind, zero_point, stored.shape, np.abs(scale))
    assert params.lo is not None and params.hi is not None
    negative = (scale < 0).reshape(params.scale.shape)
    ends = params.lo + params.hi
    zero_point = np.where(negative, ends - params.zero_point, params.zero_point)

    def counted(at: Index, part: Array) -> Array:
        wide = part.astype(np.float32 if kind.floating else np.int64)
        return np.where(params.spread(negative, codes.shape, at), ends - wide, wide)

    flipped = assembled(codes.shape, codes.dtype, (counted(*part) for part in parts_of(codes)))
    return _in_32_bits(flipped, params.with_(zero_point=zero_point))


def float_type(node: gs.Node) -> np.dtype[np.generic]:
    """The float type a Q reads or a DQ produces: that of its scale, even if that is computed."""
    return _scale(node).dtype


def code_type(dtype: np.dtype[np.generic]) -> QType:
    """The quantization type of codes of a numpy type."""
    try:
        return qtype(dtype)
    except QParamsError:
        raise Declined(f"its codes are {dtype}, which is not a quantization type") from None


def type_for_wide_zero_points(model: Model) -> QType | None:
    """The code type of a Q with an int32 zero point: that of codes stored with such zero points.

    A tool that writes every zero point as int32 does not specify its activation type; its weights
    have the type. Weights of 8 bits have zero points of 8 bits, but then the biases show the type:
    int64 codes, more than 32 bits, are added to sums over 16-bit activations. None if no Q needs
    it, if no such codes are stored, or if weights have several types.
    """
    if not any(_is_wide(node) for node in model.nodes(*QUANTIZE)):
        return None
    kinds: dict[str, QType] = {}
    biases = None
    for node in filter(_is_wide, model.nodes(*DEQUANTIZE)):
        stored = array(node.inputs[0])
        if stored is not None and stored.dtype == np.int64:
            biases = qtype("int16")
        elif stored is not None and stored.dtype not in _WIDE:
            with suppress(QParamsError):  # no codes: the node that reads them is declined later
                kind = qtype(stored.dtype)
                kinds[kind.name] = kind
    return next(iter(kinds.values()), biases) if len(kinds) < 2 else None


def _is_wide(node: gs.Node) -> bool:
    zero_point = computed(inputs_of(node, 3)[2])
    return zero_point is not None and zero_point.dtype in _WIDE


# -- pieces ---------------------------------------------------------------------------------


def _params(
    node: gs.Node,
    tensor: str,
    kind: QType,
    zero_point: Array | None,
    shape: Sequence[int | str] | None,
    magnitude: Array | None = None,
) -> QParams:
    scale = _scale(node) if magnitude is None else magnitude
    scale, axis, block = _layout(node, tensor, scale, shape)
    zero = np.zeros((), np.int64) if zero_point is None else zero_point
    known = _known(shape, zero.ndim) if block else None
    if known is not None and axis is not None:
        zero = _for_every_block(zero, axis, block, known)
    if zero_point is not None and zero.size != scale.size:
        raise QParamsError(
            f"tensor '{tensor}': {zero.size} zero points for {scale.size} scales",
            fix="give as many zero points as scales; ONNX has no other form",
        )
    if kind.floating:
        zero = zero.astype(np.float64)  # in which QParams finds a NaN
    return QParams(
        tensor=tensor,
        qtype=kind,
        scale=scale.astype(np.float32, copy=False),
        zero_point=zero if kind.floating or zero.dtype.kind in "iu" else zero.astype(np.int64),
        axis=axis,
        block=block,
    )


def _scale(node: gs.Node) -> Array:
    tensor = inputs_of(node, 2)[1]
    scale = computed(tensor)
    if tensor is None:
        raise Declined("it has no scale")
    if scale is None:
        scale = quantized_values(tensor)
    if scale is None:
        raise Declined(f"its scale '{tensor.name}' is computed at run time")
    if scale.dtype not in _FLOATS:
        raise Declined(f"its scale is {scale.dtype}, not float32 or float16")
    return scale


def _zero_point(node: gs.Node) -> Array | None:
    tensor = inputs_of(node, 3)[2]
    value = computed(tensor)
    if tensor is not None and value is None:
        raise Declined(f"its zero point '{tensor.name}' is computed at run time")
    return value


def _check_float_type(node: gs.Node, attribute: str) -> None:
    """Decline arithmetic in another float type than that of the scale."""
    stated = node.attrs.get(attribute, 0)
    if stated and numpy_dtype(stated) != _scale(node).dtype:
        raise Declined(f"its {attribute} is {numpy_dtype(stated)}, not the type of its scale")


def _in_32_bits(codes: Codes, params: QParams) -> tuple[Codes, QParams]:
    """Codes of more than 32 bits on coarser scales, one scale for each code.

    Chips with 16-bit activations add biases in 40 bits or more. Codes that came from float32 have
    24 bits that are not zero, so of codes of b bits on a grid of powers of two the last b - 24 are
    zero, and 2^(b - 30) steps of the grid make one of the new. Others change by 2^-30 of their
    value.
    """
    lo, hi = params.qtype.lo, params.qtype.hi
    if isinstance(codes, StoredValues) or codes.dtype != np.int64 or not codes.size:
        return codes, params
    if lo <= codes.min() and codes.max() <= hi:
        return codes, params
    if codes.ndim != 1:
        raise QParamsError(
            f"tensor '{params.tensor}' contains int64 codes that do not fit int32",
            fix="export the model again with coarser scales: accumulators have 32 bits",
        )
    scale, zero_point = params.broadcast(codes.shape)
    whole = (codes - zero_point).astype(np.float64)
    drop = np.maximum(np.frexp(whole)[1] - 30, 0)
    return np.round(np.ldexp(whole, -drop)).astype(np.int64), params.with_(
        scale=np.ldexp(scale, drop), zero_point=np.zeros(codes.shape, np.int64), axis=0
    )


def _stored_type(stored: Codes) -> tuple[QType, Codes]:
    """The type of constant codes, and the codes; small ones in the type QParams computes with."""
    kind = qtype("int32") if stored.dtype == np.int64 else code_type(stored.dtype)
    if isinstance(stored, StoredValues) or is_large(stored.shape):
        return kind, stored
    return kind, stored.astype(np.float32 if kind.floating else np.int64)


def _layout(
    node: gs.Node, tensor: str, scale: Array, shape: Sequence[int | str] | None
) -> tuple[Array, int | None, int]:
    """Scale, axis and block in canonical form."""
    block = int(node.attrs.get("block_size", 0))
    if scale.size == 1 and not block:
        return scale, None, 0
    axis = int(node.attrs.get("axis", 1))
    if block:
        known = _known(shape, scale.ndim)
        return scale if known is None else _for_every_block(scale, axis, block, known), axis, block
    if scale.ndim < 2:
        return scale, axis, 0
    rank = scale.ndim if shape is None else len(shape)
    stated = axis % rank if "axis" in node.attrs else None
    long = [i for i, size in enumerate(scale.shape) if size != 1]
    if scale.ndim == rank and len(long) == 1 and stated in (None, long[0]):
        return scale.reshape(-1), long[0], 0
    if shape is not None:
        if len(long) == 1 and scale.ndim < rank and scale.size == shape[axis % rank]:
            return scale.reshape(-1), axis % rank, 0
        without = [i for i in range(rank) if (*shape[:i], *shape[i + 1 :]) == scale.shape]
        size = shape[without[0]] if len(without) == 1 and stated != without[0] else None
        if isinstance(size, int):
            return np.expand_dims(scale, without[0]), without[0], size
    raise QParamsError(
        f"tensor '{tensor}': scales of shape {list(scale.shape)} without block_size do not match "
        + ("one axis" if shape is None else f"shape {list(shape)} (axis {axis})"),
        fix="give one scale per channel (1-D), or block_size for one per block",
    )


def _for_every_block(values: Array, axis: int, block: int, shape: tuple[int, ...]) -> Array:
    """One scale or zero point for each block, if one is given for all along another axis."""
    axis %= len(shape)
    count = -(-shape[axis] // block)
    blocks = (*shape[:axis], count, *shape[axis + 1 :])
    given = zip(values.shape, blocks, strict=True)
    if values.shape[axis] != count or any(n not in (1, size) for n, size in given):
        return values
    return np.broadcast_to(values, blocks).copy()


def _known(shape: Sequence[int | str] | None, rank: int) -> tuple[int, ...] | None:
    """`shape` if it has `rank` axes, all of known size."""
    sizes = tuple(size for size in shape or () if isinstance(size, int))
    return sizes if shape is not None and len(sizes) == len(shape) == rank else None
