"""LSQ with a learned offset (LSQ+, Bhalgat et al., 2020).

The offset b is a real number, the value of code 0. A file holds the integer z = clamp(R(-b/s), lo,
hi) instead, so that 0 is on the grid. Gradients are those of the paper, straight through R:

    y  = (clamp(R(x/s) + z, lo, hi) - z) * s
    dx = dy where lo - z < x/s < hi - z, else 0
    ds = g * Σ dy * (R(x/s) - x/s inside, lo below, hi above)     but for the rounding of z
    db = g * Σ dy * (0 inside, 1 outside)
    g  = that of LSQ

b is in the units of x. An offset in units of s would learn s² times slower: not at all, beside R.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from torch_bridge.arithmetic.functional import lsq_plus
from torch_bridge.fake_quant.lsq import Lsq


class LsqPlus(Lsq):
    """Scale and zero point learn; the same as LSQ if the spec is symmetric."""

    algorithm: ClassVar[str] = "lsq-plus"

    offset: Tensor

    def set_up(self) -> None:
        """Let the scale learn, and the offset of an asymmetric grid."""
        super().set_up()
        if not self.spec.symmetric:
            self.learn("offset", torch.zeros(()))

    def quantize(self, x: Tensor) -> Tensor:
        """Round with a scale and an offset that learn."""
        if self.spec.symmetric:
            return super().quantize(x)
        given = x, self.scale, -self.offset / self.scale, self.spec.grid
        return lsq_plus(*given, grad_scale=self.grad_scale(x))

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start from this grid."""
        super().set_range(scale, zero_point)
        if not self.spec.symmetric:
            self._set("offset", -zero_point * scale)

    @torch.no_grad()
    def refresh(self) -> None:
        """Keep the scale positive and the offset in range; round the offset to the zero point."""
        super().refresh()
        if not self.spec.symmetric:
            low, high = -self.spec.hi * self.scale, -self.spec.lo * self.scale
            self.offset.data.copy_(self.offset.clamp(low, high))
            self._set("zero_point", (-self.offset / self.scale).round())
