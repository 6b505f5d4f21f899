"""Small unsigned codes packed into bytes, lowest bits first, as MatMulNBits stores them.

Along the last axis, 8 / bits codes share a byte: code 0 of four 2-bit ones has the two lowest
bits. The last byte is padded with zeros.
"""

from __future__ import annotations

import numpy as np

from onnxq.arrays.pieces import Array

BITS = (2, 4, 8)
"""Widths that divide a byte evenly."""


def pack(codes: Array, bits: int) -> Array:
    """Bytes that contain `codes` (0 .. 2^bits - 1) along the last axis."""
    each = 8 // bits
    missing = -codes.shape[-1] % each
    filled = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, missing)]).astype(np.uint8)
    groups = filled.reshape(*codes.shape[:-1], -1, each)
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    return np.asarray(np.bitwise_or.reduce(groups << shifts, axis=-1))


def unpack(packed: Array, bits: int, count: int) -> Array:
    """The first `count` codes along the last axis: the inverse of `pack`."""
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    codes = (packed.astype(np.uint8)[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1)[..., :count]
