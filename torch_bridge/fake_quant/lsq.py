"""Learned step size quantization (Esser et al., 2020).

    y  = (clamp(R(x/s) + z, lo, hi) - z) * s
    dx = dy where lo - z < x/s < hi - z, else 0
    ds = g * Σ dy * (R(x/s) - x/s inside, lo - z below, hi - z above)
    g  = 1 / sqrt(n * hi), n = elements of a weight, or of one sample of an activation, per scale

g makes a step of the scale as large, relative to the scale, as a step of the weights. z is fixed.
n counts one sample, as in the paper: so g is the same however a batch is split, and gradients
accumulated over its parts are those of the whole.
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
        given = x, self.scale, self.zero_point, self.spec.grid
        spend = self.spends_gradient and not torch.compiler.is_compiling()
        return lsq(
            *given,
            grad_scale=self.grad_scale(x),
            spend_gradient=spend and not self._is_watched(),
        )

    def grad_scale(self, x: Tensor) -> float:
        """g of the formula."""
        if not self.scale_gradient:
            return 1.0
        # x may be empty, and hi is 0 for codes that are all negative.
        samples = 1 if self.spec.parameter or not x.dim() else max(x.shape[0], 1)
        elements = max(x.numel() // samples // self.scale.numel(), 1)
        return float((elements * max(self.spec.hi, 1)) ** -0.5)

    def refresh(self) -> None:
        """Keep the scale positive."""
        self.scale.data.abs_().clamp_(min=SMALLEST_SCALE)
