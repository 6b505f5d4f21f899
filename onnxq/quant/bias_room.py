r"""How fine the steps of a weight may be for its layer's bias to fit int32.

Integer kernels add a bias b as the code b / (sx * sw). A channel that training has switched off has
weights like 1e-12 and a bias like any other: with a step made for such weights, the code exceeds
int32 and the kernel adds something else. So steps of weights have a lower limit,

    sw >= |b| / (sx * 2^30)

which leaves half of int32 to the sum. What it rounds off is below 2^-23 of the bias for each
product, whatever the 8-bit code of the input.
"""

from __future__ import annotations

import numpy as np

from onnxq.quant.qparams import Array

ROOM = 2.0**30
"""The largest code of a bias."""
MOST_BITS = 8
"""Codes of more bits have finer steps, and no integer kernels: there, room would cost precision."""


def least_steps(bias: Array, input_step: float, shape: tuple[int, ...]) -> Array:
    """The limit for the steps of a weight, which has one, or one for each value of the bias."""
    sizes = np.abs(bias.astype(np.float64)).reshape(-1)
    if sizes.shape != shape:
        sizes = np.full(shape, sizes.max(initial=0.0))
    return np.asarray(sizes / (input_step * ROOM))


__all__ = ["MOST_BITS", "ROOM", "least_steps"]
