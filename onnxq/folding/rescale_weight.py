"""A quantized weight times a gain per output channel: the codes stay, the scales take the gain.

With codes q, scale s and zero point z the weight is (q - z) * s. For a gain g of a channel

    g > 0    s' = s * g     q' = q            z' = z
    g < 0    s' = s * |g|   q' = -q           z' = 0              if z = 0 and every -q is a code
             s' = s * |g|   q' = lo + hi - q  z' = lo + hi - z    otherwise: exact and in range
    g = 0    s' = s         q' = z            z' = z

The new float weight is (q' - z') * s', a point of the new grid, so rounding cannot move it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.folding.affine import CannotFold, all_finite, quiet
from onnxq.operators.weight_axis import WeightAxis
from onnxq.quant.qparams import Array, QParams


@dataclass(frozen=True)
class Rescaled:
    """The new grid, the weight on it, and notes for the user."""

    params: QParams
    weight: Array
    notes: tuple[str, ...]


@quiet
def rescale(
    params: QParams, weight: Array, where: WeightAxis, gain: Array, flip: bool = True
) -> Rescaled:
    """Multiply the quantized `weight` by one gain per output channel, exactly.

    Raises CannotFold if the layout of the scales cannot contain the gain and, without `flip`, if a
    zero point would have to move.
    """
    gain = _per_position(where, gain)
    rank, axis = weight.ndim, where.axis
    along = [1] * rank
    along[axis] = -1
    scale, zero_point = params.scale.astype(np.float64), params.zero_point
    new_axis, notes = params.axis, []
    # The gain, shaped to broadcast against the weight and against the scales.
    over_weight = over_scale = gain.reshape(along)
    scale_axis = None if params.axis is None else params.axis % rank
    if scale_axis == axis and not params.block:
        over_scale = gain
    elif params.block and scale_axis != axis:
        pass  # each output channel has scales of its own for its blocks
    elif (gain == gain[0]).all():
        over_weight = over_scale = gain[0].reshape(())
    elif params.axis is None:
        over_scale, new_axis = gain, axis
        scale, zero_point = np.full(gain.size, scale), np.full(gain.size, zero_point)
        notes.append(f"one scale became {gain.size}, one per output channel (axis {axis})")
    elif params.block:
        raise CannotFold("its weight is quantized in blocks across output channels")
    else:
        raise CannotFold(
            f"the scales of its weight run along axis {params.axis}, "
            f"its output channels along axis {axis}"
        )

    scale = np.where(over_scale == 0, scale, scale * np.abs(over_scale))
    kind = np.float16 if weight.dtype == np.float16 else np.float32
    scale = scale.astype(kind)
    least = np.finfo(kind).smallest_normal
    if not (np.isfinite(scale).all() and (scale >= least).all()):
        raise CannotFold(f"its gain takes a scale of the weight out of the range of {scale.dtype}")

    codes = params.quantize(weight)
    steps = codes - params.broadcast(weight.shape)[1]
    lo, hi = params.lo, params.hi
    assert lo is not None and hi is not None
    if (gain < 0).any():
        flipped = _must_flip(params, steps, over_weight, axis if over_weight.ndim else None)
        count = int(flipped.sum())
        if count and not flip:
            raise CannotFold(
                f"its weight has code {lo} and a negative gain, and {-lo} is not a code"
            )
        zero_point = np.where(flipped.reshape(over_scale.shape), lo + hi - zero_point, zero_point)
        if count:
            subject = (
                f"{count} of {gain.size} output channels" if over_weight.ndim else "its weight"
            )
            notes.append(
                f"{subject} with negative gain cannot be mirrored around zero point 0: "
                f"codes and zero point became {lo + hi} minus their former values"
            )
    steps = steps * np.sign(over_weight).astype(np.int64)
    made = params.with_(scale=scale.astype(np.float32), zero_point=zero_point, axis=new_axis)
    new_scale, new_zero = made.broadcast(weight.shape)
    values = (steps * new_scale.astype(np.float64)).astype(weight.dtype)
    if not all_finite(values):
        raise CannotFold(f"its gain takes the weight out of the range of {weight.dtype}")
    # In float32 the product is within 2^-24 of the grid point, far less than half a step. float16
    # has too few digits for codes of 16 bits.
    if weight.itemsize < 4 and not np.array_equal(made.quantize(values), steps + new_zero):
        raise CannotFold(f"{weight.dtype} has too few digits for the codes of its weight")
    return Rescaled(made, values, tuple(notes))


def _per_position(where: WeightAxis, gain: Array) -> Array:
    """The gain at each position of the weight's output axis."""
    if where.groups == 1:
        return gain
    by_group = gain.reshape(where.groups, -1)
    if not (by_group == by_group[0]).all():
        raise CannotFold(
            f"the {where.groups} groups of a ConvTranspose share the scales of their weight, "
            "but the gain differs between groups"
        )
    return np.asarray(by_group[0])


def _must_flip(params: QParams, steps: Array, gain: Array, axis: int | None) -> Array:
    """The channels with a negative gain and codes whose negatives are not all codes."""
    others = tuple(i for i in range(steps.ndim) if i != axis)
    zero = np.broadcast_to(params.broadcast(steps.shape)[1], steps.shape)
    assert params.lo is not None and params.hi is not None
    mirrors = (zero == 0) & (-steps >= params.lo) & (-steps <= params.hi)
    flip: Array = (gain.reshape(-1) < 0) & ~mirrors.all(axis=others)
    return flip
