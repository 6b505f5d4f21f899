"""Round weights to fewer bits, so that kernels with narrow sums of products do not saturate.

A channel whose codes q exceed lo..hi gets a larger scale, just enough for its largest codes:

    f = max(q_max / hi, q_min / lo, 1)        s' = s * f        q' = round(q * s / s')

Its values move by at most s' / 2. Channels that fit keep their scale and their values. The codes
are those of the quantized weight, not of the float it was quantized from: the trained values are
rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from onnxq.arrays.pieces import largest
from onnxq.canonical.fake_quantize import container, set_params
from onnxq.canonical.quantized_weights import on_grid, quantized_weights
from onnxq.edit import new_values, set_input
from onnxq.graph import Model
from onnxq.graph.dequantized import Values, codes_of, value_parts
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams
from onnxq.storage.tensors import StoredValues


@dataclass(frozen=True)
class NarrowWeights(Pass):
    """Round symmetric int8 weights to fewer bits (7: -64..63) if their codes need more."""

    name: ClassVar[str] = "narrow-weights"
    lossy: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    bits: int = 7

    def run(self, model: Model, trace: Trace) -> None:
        lo, hi = -(1 << self.bits - 1), (1 << self.bits - 1) - 1
        for node, params, weight in quantized_weights(model):
            reason = _declined(params)
            stored = codes_of(weight, params, container(params.qtype).dtype)
            codes = stored.load() if isinstance(stored, StoredValues) else stored
            if not reason and codes.size and lo <= codes.min() and codes.max() <= hi:
                reason = f"its codes fit {self.bits} bits"
            if reason:
                trace.skip(node, reason)
                continue
            values = on_grid(params, weight)
            narrow = params.with_(scale=_scale(params, codes, lo, hi), lo=lo, hi=hi)
            error = _largest_error(narrow, values)
            set_input(node, 0, new_values(model, node.inputs[0], values, node))
            set_params(model, node, narrow)
            trace.rewrote(
                f"'{params.tensor}'",
                f"{self.bits} bits, off by up to {100 * error:.2g} % of its largest value",
            )


def _declined(params: QParams) -> str:
    if params.qtype.floating or params.qtype.bits > 8 or not params.qtype.signed:
        return f"its codes are {params.qtype}"
    if params.block:
        return "it has one scale per block"
    return "its zero point is not 0" if np.any(params.zero_point) else ""


def _largest_error(params: QParams, values: Values) -> float:
    """The largest distance that the grid moves a value, as a share of the largest value."""
    moves = (params.fake_block(p, values.shape, at) - p for at, p in value_parts(values))
    return largest(moves) / largest(part for _, part in value_parts(values))


def _scale(params: QParams, codes: Array, lo: int, hi: int) -> Array:
    """Scales that turn the largest codes of each channel into lo or hi."""
    over = None
    if params.axis is not None:
        over = tuple(i for i in range(codes.ndim) if i != params.axis % codes.ndim)
    most, least = codes.max(axis=over).astype(np.int64), codes.min(axis=over).astype(np.int64)
    factor = np.maximum(most / hi, least / lo)
    return np.asarray(params.scale * np.maximum(factor, 1.0), np.float32)
