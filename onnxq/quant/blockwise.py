"""Queries about a grid and a large array, answered block by block, without a second array."""

from __future__ import annotations

import numpy as np

from onnxq.arrays.pieces import blocks
from onnxq.quant.qparams import Array, QParams


def keeps(params: QParams, x: Array) -> bool:
    """Whether all values of `x` lie on the grid."""
    return all(
        np.array_equal(params.fake_block(x[at], x.shape, at), x[at]) for at in blocks(x.shape)
    )


def same_codes(params: QParams, a: Array, b: Array) -> bool:
    """Whether two arrays of one shape have the same codes."""
    shape = a.shape
    return all(
        np.array_equal(
            params.quantize_block(a[at], shape, at), params.quantize_block(b[at], shape, at)
        )
        for at in blocks(shape)
    )


def code_ends(params: QParams, x: Array, shift: Array) -> tuple[int, int]:
    """The smallest and the largest code of `x`, each moved by the shift of its scale; else 0."""
    moved = (
        params.quantize_block(x[at], x.shape, at) + params.spread(shift, x.shape, at)
        for at in blocks(x.shape)
    )
    ends = [(int(codes.min()), int(codes.max())) for codes in moved]
    return min((e[0] for e in ends), default=0), max((e[1] for e in ends), default=0)
