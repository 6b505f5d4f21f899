"""Weight ranges wide enough for the biases of their layers: see `onnxq.quant.bias_room`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxq.calibration.ranges import KnownRange
from onnxq.quant.bias_room import MOST_BITS, least_steps
from onnxq.quant.grid_of_range import grid_numbers
from onnxq.quant.qparams import Array
from onnxq.quant.scheme import QSpec


def with_room(known: KnownRange, spec: QSpec, bias: Array, input_step: float) -> KnownRange:
    """The range of a weight, wider in the channels whose bias would have too large a code."""
    if spec.logarithmic or spec.qtype.floating or spec.bits > MOST_BITS:
        return known
    scale, _ = grid_numbers(known.low, known.high, spec)
    least = least_steps(bias, input_step, scale.shape)
    narrow = scale < least
    if not narrow.any():
        return known
    lo, hi = spec.range
    low, high = np.minimum(known.low, least * lo), np.maximum(known.high, least * hi)
    return replace(
        known,
        low=np.where(narrow, low, known.low),
        high=np.where(narrow, high, known.high),
        source=f"{known.source}, wide enough for its bias",
    )


__all__ = ["with_room"]
