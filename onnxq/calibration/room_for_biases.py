r"""Weight ranges wide enough for the biases of their layers.

Integer kernels add a bias as the int32 code b / (sx * sw). A channel that training has switched off
has weights like 1e-12 and a bias like any other: with a step made for such weights, the code
exceeds int32 and the kernel adds something else. So steps of weights have a lower limit,

    sw >= |b| / (sx * 2^30)

which leaves half of int32 to the sum. What it rounds off is below 2^-23 of the bias for each
product, whatever the codes of the input.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxq.calibration.ranges import KnownRange
from onnxq.quant.grid_of_range import grid_numbers
from onnxq.quant.qparams import Array
from onnxq.quant.scheme import QSpec

ROOM = 2.0**30
"""The largest code of a bias."""


def with_room(known: KnownRange, spec: QSpec, bias: Array, input_step: float) -> KnownRange:
    """The range of a weight, wider in the channels whose bias would have too large a code."""
    if spec.logarithmic or spec.qtype.floating:
        return known
    sizes = np.abs(bias.astype(np.float64)).reshape(-1)
    if sizes.shape != known.low.shape:
        sizes = np.asarray(sizes.max(initial=0.0))
    least = sizes / (input_step * ROOM)
    scale, _ = grid_numbers(known.low, known.high, spec)
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


__all__ = ["ROOM", "with_room"]
