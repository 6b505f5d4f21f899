"""Parameters that broadcast against a tensor, as dialects store them, and the axis they mean.

For what ONNX calls "one scale per channel along axis 1", other dialects store an array that
broadcasts by numpy's rules: [C,1,1] or [1,C,1,1] for that axis of an image. Counted from the end,
the axis is known even if the tensor's rank is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.graph.constants import array
from onnxq.quant.qparams import Array


def rank_of(tensor: gs.Tensor) -> int | None:
    """The number of dimensions, if it is known."""
    if tensor.shape is not None:
        return len(tensor.shape)
    value = array(tensor)
    return None if value is None else value.ndim


def varying_axes(shape: Sequence[int], rank: int | None) -> list[int]:
    """The axes along which a parameter of `shape` has several values.

    They are counted from the front if the rank of the tensor is known, else from the end.
    """
    base = len(shape) if rank is None else len(shape) - rank
    return [axis - base for axis, size in enumerate(shape) if size != 1]


def per_channel(arrays: Sequence[Array], rank: int | None) -> tuple[list[Array], int | None] | None:
    """Parameters of one tensor as vectors along one axis, or as scalars without an axis.

    None if they vary along several axes, or have more dimensions than the tensor.
    """
    axes = {axis for a in arrays for axis in varying_axes(a.shape, rank)}
    if len(axes) > 1 or (rank is not None and any(a.ndim > rank for a in arrays)):
        return None
    if not axes:
        return [a.reshape(()) for a in arrays], None
    size = max(a.size for a in arrays)
    if any(a.size not in (1, size) for a in arrays):
        return None
    return [np.broadcast_to(a.reshape(-1), (size,)) for a in arrays], axes.pop()


def spread(values: Array, axis: int | None, rank: int | None) -> Array | None:
    """The inverse: `values` in a shape that broadcasts along `axis` of a tensor of `rank`.

    None if that shape depends on a rank that is not known.
    """
    if axis is None:
        return values.reshape(())
    if rank is None:
        return values.reshape([-1, *[1] * (-axis - 1)]) if axis < 0 else None
    view = [1] * rank
    view[axis] = -1
    return values.reshape(view)
