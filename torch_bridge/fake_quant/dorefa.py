"""Weights squeezed by tanh before rounding (DoReFa-Net, Zhou et al., 2016).

    t  = tanh(w) / max|tanh(w)|,    m = max|w|      maxima over the whole tensor
    y  = m * (clamp(R(t/s) + z, lo, hi) - z) * s    t lies in -1..1, and y in -m..m

s is the step that the observer found for t, and the grid has the step m*s: it follows the largest
weight. The gradient passes the rounding if the code is in range, and m*t by the chain rule, both
maxima included.

The paper leaves m out. A batch normalisation after the layer divides by it again, so neither the
result nor a gradient differs there: the loss does not change along y, hence Σ dy*y = 0. Layers
without one, and those that a batch normalisation is folded into, need weights of their own size.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from torch_bridge.fake_quant.base import SMALLEST_SCALE, FakeQuantize


class DoReFa(FakeQuantize):
    """Straight-through rounding of squeezed weights."""

    algorithm: ClassVar[str] = "dorefa"
    learns_any_scale: ClassVar[bool] = True  # it follows the largest weight
    weights_only: ClassVar[bool] = True

    step: Tensor
    reach: Tensor

    def set_up(self) -> None:
        """Add s and m."""
        self.register_buffer("step", torch.ones(()))
        self.register_buffer("reach", torch.ones(()))
        self.observer.start = 1.0  # t of any weight that is not 0

    def transform(self, x: Tensor) -> Tensor:
        """m*t of the formula."""
        return _squeezed(x) * _largest(x)

    def observe(self, x: Tensor) -> None:
        """Include the range of the squeezed weight."""
        self.follow(x)
        # tanh hides infinity, and an empty tensor has no maximum: the observer handles both.
        usable = x.numel() and torch.isfinite(x).all()
        super().observe(_squeezed(x.detach()) if usable else x)

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start from the grid of t."""
        super().set_range(scale, zero_point)
        self._set("step", scale)
        self.refresh()

    @torch.no_grad()
    def follow(self, x: Tensor) -> None:
        """Take over m."""
        if x.numel():
            self._set("reach", _largest(x).expand(self.reach.shape))

    @torch.no_grad()
    def refresh(self) -> None:
        """Derive the scale."""
        self._set("scale", self.step * self.reach)


def _squeezed(x: Tensor) -> Tensor:
    squeezed = torch.tanh(x)
    return squeezed / _largest(squeezed)


def _largest(x: Tensor) -> Tensor:
    # A weight of zeros stays one, and its gradient finite.
    return x.abs().max().clamp(min=SMALLEST_SCALE)
