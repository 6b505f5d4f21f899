"""Quantization interval learning (Jung et al., 2019): pruning and clipping are learned.

Magnitudes in the interval c - d .. c + d are stretched to 0..1. Smaller ones become 0, larger
ones 1. A signed quantizer (for weights) also bends them by a power g:

    t  = clamp(1/2 + (|x| - c) / (2 d), 0, 1)           x instead of |x| if unsigned
    u  = sign(x) * t^g                                  u = t if unsigned
    y  = (c + d) * R(u * hi) / hi                       in -(c + d)..c + d

The gradient passes the rounding unchanged and (c + d)*u by the chain rule; that of t is 0 if it is
clamped. 0 <= c - d, so that 0 becomes 0.

The paper leaves the factor c + d out. A batch normalisation after the layer divides by it again,
so neither the result nor a gradient differs there: the loss does not change along y, hence
Σ dy*y = 0. Layers without one, and those that one is folded into, need values of their own size.
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
        """(c + d)*u of the formula."""
        center, half_width = self.spread(self.center, x), self.spread(self.half_width, x)
        # 0 has a sign here, as all have: at c = d it would get no gradient otherwise.
        sign = torch.where(x < 0, -1.0, 1.0).to(x.dtype)
        size = x * sign if self.signed else x
        t = (0.5 + (size - center) / (2 * half_width)).clamp(0, 1)
        end = center + half_width
        if not self.signed:
            return t * end
        bent = t.clamp(min=_LEAST) ** self.spread(self.bending, x)
        return torch.where(t > 0, bent, t) * sign * end

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start without pruning, clipping at the end of this grid."""
        self._require_usable(scale)
        half = scale * self.spec.hi / 2
        self._set("center", half)
        self._set("half_width", half)
        if self.signed:
            self._set("bending", torch.ones_like(half))
        self._set("zero_point", torch.zeros_like(half))
        self.initialised = True
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Keep the interval to the right of 0 and not empty, and derive the scale."""
        self.center.data.clamp_(min=SMALLEST_SCALE)
        self.half_width.data.clamp_(min=SMALLEST_SCALE)
        self.half_width.data.copy_(torch.minimum(self.half_width, self.center))
        if self.signed:
            self.bending.data.clamp_(*_BENDING)
        self._set("scale", (self.center + self.half_width) / self.spec.hi)
