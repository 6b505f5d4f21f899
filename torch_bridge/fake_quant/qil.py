"""Quantization interval learning (Jung et al., 2019): pruning and clipping are learned.

Magnitudes in the interval c - d .. c + d are stretched to 0..1. Smaller ones become 0, larger
ones 1. A signed quantizer (for weights) also bends them by a power g:

    t  = clamp(1/2 + (|x| - c) / (2 d), 0, 1)           x instead of |x| if unsigned
    u  = sign(x) * t^g                                  u = t if unsigned
    y  = R(u * hi) / hi                                 in -1..1

The gradient passes the rounding unchanged and u by the chain rule; it is 0 if t is clamped.
The result is normalised, as in the paper: the next layer (BatchNorm) absorbs the factor.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from torch_bridge.fake_quant.base import SMALLEST_SCALE, FakeQuantize

_LEAST = 1e-6  # the slope of t^g at 0 may be infinite
_BENDING = (0.1, 10.0)


class Qil(FakeQuantize):
    """The interval to quantize learns."""

    algorithm: ClassVar[str] = "qil"
    learns_any_scale: ClassVar[bool] = True
    symmetric_only: ClassVar[bool] = True
    ranges_per: ClassVar[tuple[str, ...]] = ("tensor", "channel")

    center: Tensor
    half_width: Tensor
    bending: Tensor

    def set_up(self) -> None:
        """Add c and d, and g if signed."""
        self.signed = self.spec.lo < 0
        self.learn("center", torch.ones(()))
        self.learn("half_width", torch.ones(()))
        if self.signed:
            self.learn("bending", torch.ones(()))

    def transform(self, x: Tensor) -> Tensor:
        """u of the formula."""
        center, half_width = self.spread(self.center, x), self.spread(self.half_width, x)
        size = x.abs() if self.signed else x
        t = (0.5 + (size - center) / (2 * half_width)).clamp(0, 1)
        if not self.signed:
            return t
        bent = t.clamp(min=_LEAST) ** self.bending
        return torch.where(t > 0, bent, 0.0) * torch.sign(x)

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start without pruning, clipping at the end of this grid."""
        self._require_usable(scale)
        half = scale * self.spec.hi / 2
        self._set("center", half)
        self._set("half_width", half)
        self._set("scale", torch.full_like(half, 1 / self.spec.hi))
        self._set("zero_point", torch.zeros_like(half))
        self.initialised = True

    def refresh(self) -> None:
        """Keep the interval positive and not empty."""
        self.half_width.data.clamp_(min=SMALLEST_SCALE)
        self.center.data.clamp_(min=SMALLEST_SCALE)
        if self.signed:
            self.bending.data.clamp_(*_BENDING)
