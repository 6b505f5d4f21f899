"""Learned step size quantization (Esser et al., 2020).

    y  = (clamp(R(x/s) + z, lo, hi) - z) * s
    dx = dy where lo - z < x/s < hi - z, else 0
    ds = g * Σ dy * (R(x/s) - x/s inside, lo - z below, hi - z above)
    g  = 1 / sqrt(n * hi), n = elements per scale

g makes a step of the scale as large, relative to the scale, as a step of the weights. z is fixed.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from torch_bridge.arithmetic.functional import lsq
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.fake_quant.base import SMALLEST_SCALE, FakeQuantize
from torch_bridge.observers.base import Observer


class Lsq(FakeQuantize):
    """The scale learns; its gradient is multiplied by g if `scale_gradient`."""

    algorithm: ClassVar[str] = "lsq"
    learns_any_scale: ClassVar[bool] = True

    def __init__(
        self,
        spec: QuantizerSpec,
        observer: Observer,
        name: str = "",
        *,
        scale_gradient: bool = True,
    ) -> None:
        super().__init__(spec, observer, name)
        self.scale_gradient = scale_gradient

    def set_up(self) -> None:
        """Let the scale learn."""
        self.learn("scale", torch.ones(()))

    def quantize(self, x: Tensor) -> Tensor:
        """Round with a scale that learns."""
        return self._rounded(x, self.scale)

    def quantize_scaled(self, x: Tensor, gain: Tensor) -> Tensor | None:
        """`x` on the grid of step s/gain; autograd takes the gradient back to s."""
        if not self.scales_freely:
            return None
        self.refresh()
        return self._rounded(x, self.scale / gain, spend_gradient=True)

    def _rounded(self, x: Tensor, scale: Tensor, *, spend_gradient: bool = False) -> Tensor:
        given = x, scale, self.zero_point, self.spec.grid
        return lsq(*given, grad_scale=self.grad_scale(x), spend_gradient=spend_gradient)

    def grad_scale(self, x: Tensor) -> float:
        """g of the formula."""
        if not self.scale_gradient:
            return 1.0
        # x may be empty, and hi is 0 for codes that are all negative.
        elements = max(x.numel() // self.scale.numel(), 1)
        return float((elements * max(self.spec.hi, 1)) ** -0.5)

    def refresh(self) -> None:
        """Keep the scale positive."""
        self.scale.data.abs_().clamp_(min=SMALLEST_SCALE)
