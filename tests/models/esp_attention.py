"""Attention in whole numbers, as ESP-DL's kernel for the ESP32-P4 computes it.

PPQ's fork for ESP-DL imitates that kernel when it runs an 8-bit model, whereas ONNX's Attention
computes a real softmax. With codes q, k, v, their scales s_q, s_k, s_v, and g = scale * s_q * s_k:

    d_j = max_i(q . k_i) - q . k_j           how far a score lies under the largest, an integer
    e_j = floor(127 * exp(-g * 2^n * min(d_j >> n, 511)) + 1/2)
    y   = round(s_v / s_y * sum_j(e_j * v_j) / sum_j(e_j))

A probability is thus e_j, one of 128 values, over their sum. n is the largest shift, from 0 to 21,
of which one step of the table, 2^n * g, is at most 16/255: 256 entries then reach e^-16. Up to 64
keys, one tile of the kernel, this is all; beyond that it rescales running sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

TILE = 64


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    steps: Sequence[float],
    scale: float,
) -> np.ndarray:
    """Attention over the last two axes of quantized values; `steps` are those of q, k, v and y."""
    assert k.shape[-2] <= TILE
    of_q, of_k, of_v, of_y = steps
    scores = _codes(q, of_q) @ np.swapaxes(_codes(k, of_k), -1, -2)
    under = (scores.max(axis=-1, keepdims=True) - scores).astype(np.int64)
    step = scale * of_q * of_k
    shift = min(21, max(0, math.floor(math.log2(16 / 255 / step))))
    index = np.minimum(under >> shift, 511)
    weights = np.floor(127 * np.exp(-step * 2**shift * index) + 0.5)
    mean = weights @ _codes(v, of_v) / weights.sum(axis=-1, keepdims=True)
    return (np.clip(np.round(mean * of_v / of_y), -128, 127) * of_y).astype(np.float32)


def _codes(values: np.ndarray, step: float) -> np.ndarray:
    return np.round(values.astype(np.float64) / step)
