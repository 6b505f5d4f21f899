"""The gain of a batch norm, split into a part for the scales of a weight and a rest for the weight.

    f = g·r,    W·f = (W·r)·g,    FQ(W·r)·g is on the grid of FQ, with scales s·g

f follows the running variance, which follows the quantized weights. If weights were quantized with
f in them (g = 1), a step s would be s/f of the weights themselves, and that circle need not close:
weights that clip give a smaller variance, so a larger f, so more weights clip. A quantizer that
gives values of another size than it reads never settles. What is in g takes no part, since the
quantizer does not see it:

    one scale per channel       g = |f|              r = ±1      none of f is left
    scales are powers of two    g = 2^R(log2 |f|)    0.7 <= |r| <= 1.4
    one scale per tensor        g = mean |f|         r is what the channel differs from the mean by
    logarithmic grid            g = 1                r = f
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from onnxq.operators.weight_axis import WeightAxis
from torch_bridge.fake_quant import FakeQuantize

_SMALLEST = 1e-12  # scales must be positive: a channel with f = 0 adds next to nothing


class GainSplit(NamedTuple):
    """f = scales·weights."""

    scales: Tensor | None
    """The part in the scales, one per channel or for all; None for 1."""
    weights: Tensor
    """The part in the weights, per channel."""


def split_gain(f: Tensor, quantizer: nn.Module, layout: WeightAxis) -> GainSplit:
    """The parts of `f` for a weight with this quantizer and these output channels."""
    if not isinstance(quantizer, FakeQuantize) or not quantizer.takes_gain:
        return GainSplit(None, f)
    spec = quantizer.spec
    per_channel = spec.axis == layout.axis and layout.groups == 1 and not spec.block
    powers = spec.power_of_two or quantizer.powers_of_two
    size, sign = f.abs().clamp(min=_SMALLEST), torch.where(f < 0, -1.0, 1.0).to(f.dtype)
    if per_channel and not powers:
        return GainSplit(size, sign)
    moved = (size if per_channel else size.mean()).detach()
    if powers:
        moved = torch.pow(2.0, moved.log2().round())  # exporters know no exp2
    return GainSplit(moved, torch.where(f.abs() < _SMALLEST, sign * size, f) / moved)
