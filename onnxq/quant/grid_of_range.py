"""The grid of a target that covers a range of real numbers.

    symmetric    scale = max(high / hi, low / lo)     zero point 0
    otherwise    scale = (high - low) / (hi - lo)     zero point = R(lo - low / scale)

Zero is always on the grid: low <= 0 <= high is enforced. A range of nothing but 0 has the scale 1.
A power of two is the next one that covers the range.
"""

from __future__ import annotations

import numpy as np

from onnxq.quant.qparams import Array, QParams, Role
from onnxq.quant.scheme import QSpec

_LEAST = float(np.finfo(np.float32).tiny)
"""Scales below the smallest normal number are not exact."""

_MOST = 127
"""The exponent of the largest power of two that a float32 holds."""


def grid_numbers(low: Array, high: Array, spec: QSpec) -> tuple[Array, Array]:
    """Scales (float32 values in float64) and zero points for ranges of any shape."""
    lo, hi = spec.range
    low = np.minimum(np.asarray(low, np.float64), 0.0)
    high = np.maximum(np.asarray(high, np.float64), 0.0)
    if spec.symmetric:
        scale = np.maximum(high / hi, low / lo if lo else np.zeros_like(low))
    else:
        scale = (high - low) / (hi - lo)
    if spec.power_of_two:
        exponent = np.ceil(np.log2(np.where(scale > 0, scale, 1.0)) - 1e-6)
        scale = 2.0 ** np.minimum(exponent, _MOST)
    scale = np.where(scale < _LEAST, 1.0, scale).astype(np.float32).astype(np.float64)
    if spec.symmetric:
        return scale, np.zeros(scale.shape, np.int64)
    return scale, np.clip(np.rint(lo - low / scale), lo, hi).astype(np.int64)


def grid_of_range(
    tensor: str, low: Array, high: Array, spec: QSpec, *, axis: int | None = None, role: Role
) -> QParams:
    """The quantizer of `spec` that covers low..high, one range per channel along `axis`."""
    scale, zero_point = grid_numbers(low, high, spec)
    lo, hi = spec.range
    return QParams(tensor, spec.qtype, scale, zero_point, axis=axis, lo=lo, hi=hi, role=role)


__all__ = ["grid_numbers", "grid_of_range"]
