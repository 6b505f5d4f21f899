r"""Scale s and integer zero point z of a range, for codes lo..hi.

    symmetric, lo < 0     s = max(|min|, |max|) / ((hi - lo) / 2),       z = 0
    symmetric, lo >= 0    s = max(max, 0) / hi (negatives are clipped),   z = 0
    affine                min <- min(min, 0), max <- max(max, 0)
                          s = (max - min) / (hi - lo),   z = clamp(lo - round(min / s), lo, hi)

round is half to even. With `power_of_two`, s becomes 2^round(log2 s): the *nearest* power of two
on the logarithmic axis, so a factor of up to sqrt(2) of the range may be clipped or wasted; z
follows from the rounded s. s is kept within the normal float32 numbers, so an all-zero range gives
a scale that is positive and finite.

Scales are computed in float64 and only the result is rounded to float32. For -a..a on 0..255 the
quotient min / s is the tie -127.5 for every a. A scale already rounded to float32 would break it
one way or the other, and so would the last bit in float64. The quotient rounded to float32 is
always -127.5, hence z = 128.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_bridge.arithmetic.spec import QuantizerSpec

SMALLEST = torch.finfo(torch.float32).tiny
LARGEST = torch.finfo(torch.float32).max


def scale_of(low: Tensor, high: Tensor, spec: QuantizerSpec) -> Tensor:
    """The scale, in float64, whose grid spans `low`..`high`."""
    low, high = low.double(), high.double()
    if not spec.symmetric:
        scale = (high.clamp(min=0) - low.clamp(max=0)) / (spec.hi - spec.lo)
    elif spec.lo < 0:
        scale = torch.maximum(low.abs(), high.abs()) / ((spec.hi - spec.lo) / 2)
    else:
        scale = high.clamp(min=0) / spec.hi
    return usable(scale, spec)


def usable(scale: Tensor, spec: QuantizerSpec) -> Tensor:
    """`scale` made positive and finite, and a power of two if `spec` requires it."""
    scale = scale.double().clamp(SMALLEST, LARGEST)
    return torch.exp2(scale.log2().round()).clamp(max=2.0**127) if spec.power_of_two else scale


def zero_point_of(low: Tensor, scale: Tensor, spec: QuantizerSpec) -> Tensor:
    """The int32 zero point that maps the lower of `low` and 0 to the lowest code."""
    if spec.symmetric:
        zero_point = torch.zeros_like(scale)
    else:
        zero_point = spec.lo - torch.round((low.double().clamp(max=0) / scale).float())
    return zero_point.clamp(spec.lo, spec.hi).to(torch.int32)
