"""Layers in float64 numpy, and how far a result is from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Floats = np.ndarray[Any, np.dtype[Any]]


def relative_error(got: Floats, want: Floats) -> float:
    """Largest difference, measured by the largest value wanted."""
    peak = np.abs(want.astype(np.float64)).max(initial=0) or 1.0
    return float(np.abs(got.astype(np.float64) - want).max(initial=0) / peak)


def conv64(x: Floats, w: Floats, bias: Floats, groups: int, pad: int) -> Floats:
    """2-D convolution of stride 1 in float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = sliding_window_view(x, w.shape[2:], axis=(2, 3))
    n, c, h, v = windows.shape[:4]
    windows = windows.reshape(n, groups, c // groups, h, v, *w.shape[2:])
    weights = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    y = np.einsum("ngchwij,gocij->ngohw", windows, weights).reshape(n, -1, h, v)
    return np.asarray(y + bias.reshape(-1, 1, 1))
