"""Weights squeezed by tanh before rounding (DoReFa-Net, Zhou et al., 2016).

    t  = tanh(w) / max|tanh(w)|                     the maximum over the whole tensor
    y  = (clamp(R(t/s) + z, lo, hi) - z) * s        t lies in -1..1, and so does y

The gradient passes the rounding if the code is in range, and t by the chain rule, including the
maximum. The observer sees t.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from torch_bridge.fake_quant.base import FakeQuantize


class DoReFa(FakeQuantize):
    """Straight-through rounding of squeezed weights."""

    algorithm: ClassVar[str] = "dorefa"

    def transform(self, x: Tensor) -> Tensor:
        """t of the formula."""
        squeezed = torch.tanh(x)
        # An all-zero weight stays zero.
        peak = squeezed.abs().max().clamp(min=torch.finfo(squeezed.dtype).tiny)
        return squeezed / peak

    def observe(self, x: Tensor) -> None:
        """Include the range of the squeezed weight."""
        # tanh hides infinity, and an empty tensor has no maximum: the observer handles both.
        usable = x.numel() and torch.isfinite(x).all()
        super().observe(self.transform(x.detach()) if usable else x)
