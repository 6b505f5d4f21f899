"""The largest sums that integer layers can form, from the codes they really have.

A layer with weight codes w, input codes x in lo..hi and zero points zw, zx computes

    sum over k of (w[k] - zw) * (x[k] - zx), plus bias / (sx * sw)

Every x[k] is free, so the sum of an output channel lies between

    sum of min(v[k] * (lo - zx), v[k] * (hi - zx))   and   the same with max,   v = w - zw

and reaches both ends. If these exceed 32 bits, an input exists that wraps the accumulator.

8-bit kernels of x86 CPUs with AVX2 but without VNNI multiply unsigned input codes with signed
weight codes and add *neighbouring pairs* in 16 bits, saturating (vpmaddubsw), before zero points
are subtracted:

    x[2k] * w[2k] + x[2k + 1] * w[2k + 1]            must lie in -32768..32767

Signed input codes are raised by 128 first. Weights of 7 bits (-64..63) are always safe:
2 * 255 * 64 = 32640. Unsigned weights go through another kernel, which does not saturate.
Neighbours are neighbours in the order that a kernel reads: channels innermost in onnxruntime. As
other kernels read a Conv with its window innermost, both orders must be safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import onnx_graphsurgeon as gs

from onnxq.arrays import pieces
from onnxq.canonical.fake_quantize import container, is_fake_quantize, params_of
from onnxq.canonical.quantizers import quantizer_behind
from onnxq.folding.affine import CannotFold
from onnxq.folding.linear import LinearLayer, bias_of, read_layer
from onnxq.graph import Model
from onnxq.graph.dequantized import codes_of
from onnxq.operators.weight_axis import LINEAR_OPS
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.storage.tensors import StoredValues

INT16, INT32 = np.iinfo(np.int16), np.iinfo(np.int32)
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Bounds:
    """The smallest and largest sums that one layer can form."""

    node: gs.Node
    low: int
    high: int
    """Ends of the 32-bit sums of all channels, bias included."""
    channel: int
    """The output channel with the largest sum."""
    pair_low: int
    pair_high: int
    """Ends of the 16-bit sums of pairs; 0 if none are formed."""

    @property
    def fits_accumulator(self) -> bool:
        """Whether no input can wrap a 32-bit sum."""
        return bool(INT32.min <= self.low and self.high <= INT32.max)

    @property
    def fits_pairs(self) -> bool:
        """Whether no input can saturate a 16-bit sum of two products."""
        return bool(INT16.min <= self.pair_low and self.pair_high <= INT16.max)


def bounds(model: Model) -> Iterator[Bounds]:
    """The bounds of every layer of a canonical model whose input and weight are quantized."""
    known: dict[int, gs.Node | None] = {}
    for node in model.nodes(*LINEAR_OPS):
        source = input_quantizer(node.inputs[0], known)
        if source is None:
            continue
        try:
            layer = read_layer(node)
        except CannotFold:
            continue  # no constant weight: nothing is known of its codes
        if layer.fake is not None:
            x = params_of(source)
            w = params_of(layer.fake, role=Role.WEIGHT)
            integers = all(not p.qtype.floating and p.qtype.bits <= 8 for p in (x, w))
            if x.axis is None and not w.block and integers:
                yield _bounds(layer, x, w)


def input_quantizer(
    tensor: gs.Tensor, known: dict[int, gs.Node | None] | None = None
) -> gs.Node | None:
    """The linear quantizer of the values in `tensor`; `known` as in `quantizer_behind`."""
    node = quantizer_behind(tensor, {} if known is None else known)
    return node if is_fake_quantize(node) else None


def _bounds(layer: LinearLayer, x: QParams, w: QParams) -> Bounds:
    codes = codes_of(layer.values, w, container(w.qtype).dtype)
    whole = codes.load() if isinstance(codes, StoredValues) else codes
    assert x.lo is not None and x.hi is not None
    lo, hi, shift = x.lo, x.hi, int(x.zero_point)
    signed = w.qtype.signed and layer.node.op != "ConvTranspose" and not _is_depthwise(layer)
    up = 128 if x.qtype.signed else 0
    least, most = (np.zeros(_rows(layer), np.int64) for _ in range(2))
    pairs = [(0, 0)]
    orders_read = (True, False) if layer.node.op == "Conv" else (False,)
    for at, rows in _parts(layer, whole.shape):
        part = whole[at].astype(np.int32)
        steps = _by_channel(layer, part - w.block_of(whole.shape, at)[1].astype(np.int32))
        up_steps = np.maximum(steps, 0).sum(axis=1, dtype=np.int64)
        down_steps = steps.sum(axis=1, dtype=np.int64) - up_steps
        # A positive step is least times the lower end, a negative one times the upper.
        least[rows] += up_steps * (lo - shift) + down_steps * (hi - shift)
        most[rows] += up_steps * (hi - shift) + down_steps * (lo - shift)
        if signed:
            orders = (_by_channel(layer, part, channels_last=last) for last in orders_read)
            pairs += [_pair_ends(order, lo + up, hi + up) for order in orders]
    bias = _bias_codes(layer, x, w)
    least, most = least + np.minimum(bias, 0), most + np.maximum(bias, 0)
    worst = int(np.argmax(np.maximum(most, -least)))
    ends = min(p[0] for p in pairs), max(p[1] for p in pairs)
    return Bounds(layer.node, int(least.min()), int(most.max()), worst, *ends)


def _rows(layer: LinearLayer) -> int:
    """The number of rows that `_by_channel` makes of the whole weight."""
    shape = layer.values.shape
    stack = math.prod(shape[:-2]) if layer.node.op == "MatMul" else 1
    return layer.where.channels(shape) * stack


def _parts(layer: LinearLayer, shape: tuple[int, ...]) -> Iterator[tuple[pieces.Index, slice]]:
    """Parts of the weight, and the rows of the whole to which their rows belong.

    A row is cut at even places only, which keeps pairs of neighbours together.
    """
    rest = (slice(None),) * len(shape)
    if not pieces.is_large(shape):
        yield rest, slice(None)
    elif layer.node.op == "ConvTranspose":
        inside = shape[0] // layer.where.groups
        step = max(1, pieces.PIECE * shape[1] * layer.where.groups // math.prod(shape))
        for group in range(layer.where.groups):
            within = slice(group * inside, (group + 1) * inside)
            for start in range(0, shape[1], step):
                stop = min(start + step, shape[1])
                rows = slice(group * shape[1] + start, group * shape[1] + stop)
                yield (within, slice(start, stop), *rest[2:]), rows
    elif layer.node.op == "Conv" or (len(shape) == 2 and layer.where.axis == 0):
        step = max(1, pieces.PIECE * shape[0] // math.prod(shape))
        for start in range(0, shape[0], step):
            rows = slice(start, min(start + step, shape[0]))
            yield (rows, *rest[1:]), rows
    else:
        step = max(2, pieces.PIECE // shape[-1] // 2 * 2)
        for number, outer in enumerate(product(*map(range, shape[:-2]))):
            front = tuple(slice(i, i + 1) for i in outer)
            rows = slice(number * shape[-1], (number + 1) * shape[-1])
            for start in range(0, shape[-2], step):
                yield (*front, slice(start, min(start + step, shape[-2])), slice(None)), rows


def _by_channel(layer: LinearLayer, codes: Ints, *, channels_last: bool = False) -> Ints:
    """The weights that each output channel sums over, one row per channel."""
    if layer.node.op == "ConvTranspose":
        groups = layer.where.groups * codes.shape[0] // layer.values.shape[0]
        split = codes.reshape(groups, codes.shape[0] // groups, codes.shape[1], -1)
        return split.transpose(0, 2, 1, 3).reshape(groups * codes.shape[1], -1)
    if layer.node.op == "Conv":
        rows = np.moveaxis(codes, 1, -1) if channels_last else codes
        return rows.reshape(codes.shape[0], -1)
    if layer.where.axis == 0:
        return codes
    return codes.swapaxes(-1, -2).reshape(-1, codes.shape[-2])  # (..., K, N), a stack of matrices


def _pair_ends(rows: Ints, low: int, high: int) -> tuple[int, int]:
    """The ends of x[2k] * w[2k] + x[2k+1] * w[2k+1]; the last of an odd row is alone."""
    if rows.shape[1] % 2:
        rows = np.pad(rows, ((0, 0), (0, 1)))
    a, b = rows * low, rows * high
    least, most = np.minimum(a, b), np.maximum(a, b)
    down, up = least[:, ::2] + least[:, 1::2], most[:, ::2] + most[:, 1::2]
    return int(down.min(initial=0)), int(up.max(initial=0))


def _is_depthwise(layer: LinearLayer) -> bool:
    """Whether every output channel reads one input channel: such kernels multiply in 32 bits."""
    grouped = layer.node.attrs.get("group", 1) > 1
    return bool(layer.node.op == "Conv" and layer.values.shape[1] == 1 and grouped)


def _bias_codes(layer: LinearLayer, x: QParams, w: QParams) -> Array:
    """The bias in steps of the sums, one per row of `_by_channel`."""
    try:
        bias, _ = bias_of(layer)
    except CannotFold:
        bias = None
    if bias is None:
        return np.zeros((), np.int64)
    scale = w.scale.reshape(-1).astype(np.float64) * float(x.scale)
    if scale.size not in (1, bias.size):
        scale = np.tile(scale, bias.size // scale.size)  # channels of grouped ConvTranspose
    limit = float(2**53)
    with np.errstate(all="ignore"):  # no sum is bounded if the bias is NaN: taken for 0
        steps = np.nan_to_num(np.rint(bias / scale))
    return np.asarray(np.clip(steps, -limit, limit), np.int64)
