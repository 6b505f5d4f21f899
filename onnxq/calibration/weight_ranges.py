"""Ranges of weights, from their own values.

With 8 bits the extremes are as good as anything. With fewer bits rounding costs more than clipping
the few largest values, so the range is the one with the least squared error, channel by channel.
"""

from __future__ import annotations

import numpy as np

from onnxq.errors import OptionError, near_matches
from onnxq.quant.grid_of_range import grid_numbers
from onnxq.quant.qparams import Array
from onnxq.quant.scheme import QSpec

METHODS = ("min-max", "mse")
_SHARES = np.linspace(1.0, 0.3, 29)


def weight_range(
    values: Array, axis: int | None, spec: QSpec, method: str | None = None
) -> tuple[Array, Array, str]:
    """Lower and upper ends, one pair or one per channel, and how they were found."""
    chosen = chosen_method(spec, method)
    rows = values.reshape(1, -1) if axis is None else _rows(values, axis)
    low, high = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
    if chosen == "mse":
        best = _SHARES[np.argmin([_error(rows, low * s, high * s, spec) for s in _SHARES], axis=0)]
        low, high = low * best, high * best
    where = "of its values" if axis is None else "of each channel's values"
    text = f"{'extremes' if chosen == 'min-max' else 'least squared error'} {where}"
    if axis is None:
        return low.reshape(()), high.reshape(()), text
    return low, high, text


def chosen_method(spec: QSpec, method: str | None) -> str:
    """The stated method, or the one for the number of bits."""
    if method is not None and method not in METHODS:
        raise OptionError(
            f"there is no method '{method}' for weights", fix=near_matches(method, METHODS)
        )
    return method or ("mse" if spec.bits < 8 and not spec.logarithmic else "min-max")


def block_range(
    values: Array, axis: int, spec: QSpec, method: str | None = None
) -> tuple[Array, Array, str]:
    """Ends of each block of `spec.block` elements along `axis` of a matrix, shaped like scales."""
    rows = np.moveaxis(values, axis, -1)
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % spec.block)))  # 0 is on every grid
    found = weight_range(padded.reshape(-1, spec.block), 0, spec, method)
    low, high = (np.moveaxis(each.reshape(len(rows), -1), -1, axis) for each in found[:2])
    return low, high, found[2].replace("channel", "block")


def _rows(values: Array, axis: int) -> Array:
    return np.asarray(np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1))


def _error(rows: Array, low: Array, high: Array, spec: QSpec) -> Array:
    lo, hi = spec.range
    scale, zero = (each[:, None] for each in grid_numbers(low, high, spec))
    codes = np.clip(np.rint(rows / scale) + zero, lo, hi)
    return np.asarray(np.square((codes - zero) * scale - rows).sum(axis=1))


__all__ = ["METHODS", "block_range", "chosen_method", "weight_range"]
