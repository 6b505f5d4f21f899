"""Activations clipped at a bound that learns (PACT, Choi et al., 2018).

The upper bound is a > 0. The lower one is -a where the spec is symmetric and signed, 0 where it
is symmetric and unsigned, and else b <= 0, which learns too. They span the grid:

    symmetric   s = a / hi,                    z = 0
    else        s = (a - b) / (hi - lo),       z = clamp(lo - R(b/s), lo, hi)
    y  = (clamp(R(x/s) + z, lo, hi) - z) * s
    dx = dy inside the bounds, else 0
    da = Σ dy over x >= a   (and -Σ dy over x <= -a where the lower bound is -a)
    db = Σ dy over x < b

One range per tensor. The bounds follow the observer while it observes, and learn from then on.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.functional import TensorFunction, fake_quantize
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.fake_quant.base import SMALLEST_SCALE, FakeQuantize
from torch_bridge.observers.base import Observer


class Pact(FakeQuantize):
    """The bounds of the range learn."""

    algorithm: ClassVar[str] = "pact"
    learns_any_scale: ClassVar[bool] = True

    alpha: Tensor
    beta: Tensor

    def __init__(self, spec: QuantizerSpec, observer: Observer, name: str = "") -> None:
        super().__init__(spec, observer, name)
        if spec.per_channel:
            raise OptionError(
                "'pact' learns one range per tensor, not per channel or block",
                fix="use it for activations, and for example 'lsq' for weights per channel",
            )
        self.learn("alpha", torch.ones(()))
        if not spec.symmetric:
            self.learn("beta", torch.zeros(()))

    def quantize(self, x: Tensor) -> Tensor:
        """Round; bounds get the gradient of what they clip."""
        y = fake_quantize(x.detach(), self.scale, self.zero_point, self.spec.grid)
        return _Clipped.apply(x, y, self.alpha, *self._lower())

    def _lower(self) -> tuple[Tensor, float]:
        """The lower bound as a tensor that may learn, and its part of alpha's gradient."""
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
        """Keep the bounds on their sides of 0, and put the grid between them."""
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
    """Gives the rounded value y the gradients of clipping x."""

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
