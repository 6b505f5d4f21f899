"""Ranges of weights, from their own values.

With 8 bits the extremes are as good as anything. With fewer bits rounding costs more than clipping
the few largest values, so the range is the one with the least squared error, channel by channel.
"""

from __future__ import annotations

import numpy as np

from onnxq.arrays import pieces
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
    rows = values[None] if axis is None else np.moveaxis(values, axis, 0)
    count = max(1, len(rows))
    found = [
        _ends(rows[at].reshape(at.stop - at.start, -1), spec, chosen)
        for at in pieces.row_slices(count, values.size // count)
    ]
    low, high = (np.concatenate(each) for each in zip(*found, strict=True))
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
    more = ((0, 0), (0, -rows.shape[1] % spec.block))  # 0 is on every grid
    found = [
        weight_range(np.pad(rows[at], more).reshape(-1, spec.block), 0, spec, method)
        for at in pieces.row_slices(*rows.shape)
    ]
    low, high = (
        np.moveaxis(np.concatenate(each).reshape(len(rows), -1), -1, axis)
        for each in list(zip(*found, strict=True))[:2]
    )
    return low, high, found[0][2].replace("channel", "block")


def _ends(rows: Array, spec: QSpec, method: str) -> tuple[Array, Array]:
    """The ends of each row."""
    low, high = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
    if method != "mse":
        return low, high
    best = _SHARES[np.argmin([_error(rows, low * s, high * s, spec) for s in _SHARES], axis=0)]
    return low * best, high * best


def _error(rows: Array, low: Array, high: Array, spec: QSpec) -> Array:
    lo, hi = spec.range
    scale, zero = (each[:, None] for each in grid_numbers(low, high, spec))

    def sums(part: Array) -> Array:
        codes = np.clip(np.rint(part / scale) + zero, lo, hi)
        return np.asarray(np.square((codes - zero) * scale - part).sum(axis=1))

    # Only of one range for a whole weight are rows as long as that.
    cuts = pieces.row_slices(rows.shape[1], len(rows))
    return np.asarray(np.sum([sums(rows[:, at]) for at in cuts], axis=0))


__all__ = ["METHODS", "block_range", "chosen_method", "weight_range"]
