"""Activations clipped at a bound that learns (PACT, Choi et al., 2018).

The upper bound is a > 0. The lower bound is -a if the spec is symmetric and signed, 0 if it is
symmetric and unsigned, and else b <= 0, which learns too. They span the grid:

    symmetric   s = a / hi,                    z = 0
    else        s = (a - b) / (hi - lo),       z = clamp(lo - R(b/s), lo, hi)
    y  = (clamp(R(x/s) + z, lo, hi) - z) * s
    dx = dy inside the bounds, else 0
    da = Σ dy over x >= a   (and -Σ dy over x <= -a if the lower bound is -a)
    db = Σ dy over x < b

One range per tensor. The bounds follow the observer during calibration, and learn afterwards.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from torch_bridge.arithmetic.functional import TensorFunction
from torch_bridge.fake_quant.base import SMALLEST_SCALE, FakeQuantize


class Pact(FakeQuantize):
    """The bounds of the range learn."""

    algorithm: ClassVar[str] = "pact"
    learns_any_scale: ClassVar[bool] = True
    ranges_per: ClassVar[tuple[str, ...]] = ("tensor",)

    alpha: Tensor
    beta: Tensor

    def set_up(self) -> None:
        """Add a, and b if the grid is asymmetric."""
        self.learn("alpha", torch.ones(()))
        if not self.spec.symmetric:
            self.learn("beta", torch.zeros(()))

    def quantize(self, x: Tensor) -> Tensor:
        """Round; bounds get the gradient of the values they clip."""
        return _Clipped.apply(x, self.on_grid(x.detach()), self.alpha, *self._lower())

    def _lower(self) -> tuple[Tensor, float]:
        """The lower bound as a tensor that may learn, and its factor in alpha's gradient."""
        if not self.spec.symmetric:
            return self.beta, 0.0
        if self.spec.lo < 0:
            return -self.alpha.detach(), -1.0
        return torch.zeros_like(self.alpha.detach()), 0.0

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start from the bounds of this grid."""
        super().set_range(scale, zero_point)
        self._set("alpha", (self.spec.hi - zero_point) * scale)
        if not self.spec.symmetric:
            self._set("beta", (self.spec.lo - zero_point) * scale)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Keep the bounds on their sides of 0, and derive the grid between them."""
        lo, hi = self.spec.lo, self.spec.hi
        self.alpha.data.clamp_(min=SMALLEST_SCALE * (hi - lo))
        if self.spec.symmetric:
            self._set("scale", self.alpha / hi)
            return
        self.beta.data.clamp_(max=0)
        scale = (self.alpha - self.beta) / (hi - lo)
        self._set("scale", scale)
        self._set("zero_point", (lo - (self.beta / scale).round()).clamp(lo, hi))


class _Clipped(TensorFunction):
    """The rounded value y with the gradients of clipping x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, upper: Tensor, lower: Tensor, mirrored: float
    ) -> Tensor:
        ctx.save_for_backward(x, upper, lower)
        ctx.mirrored = mirrored
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, upper, lower = ctx.saved_tensors
        over = x >= upper
        under = x <= lower if ctx.mirrored else x < lower
        below = torch.where(under, dy, 0.0).sum()
        d_upper = torch.where(over, dy, 0.0).sum() + ctx.mirrored * below
        dx = torch.where(over | under, 0.0, dy)
        d_lower = below.to(lower.dtype) if ctx.needs_input_grad[3] else None
        return dx, None, d_upper.to(upper.dtype), d_lower, None
