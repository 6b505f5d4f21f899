"""Quantization dropped at random while the scale learns (QDrop, Wei et al., 2022).

    q  = (clamp(R(x/s) + z, lo, hi) - z) * s
    y  = q with probability p, else x; element by element, in training mode only
    dx = dy if x was kept or lo - z < x/s < hi - z, else 0
    ds = Σ over the quantized elements of dy * (R(x/s) - x/s inside, lo - z below, hi - z above)

p = 1 never drops. z is fixed.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.fake_quant.lsq import Lsq
from torch_bridge.observers.base import Observer


class QDrop(Lsq):
    """The scale learns while only a share of the elements is quantized, `probability` p."""

    algorithm: ClassVar[str] = "qdrop"

    def __init__(
        self, spec: QuantizerSpec, observer: Observer, name: str = "", *, probability: float = 0.5
    ) -> None:
        super().__init__(spec, observer, name, scale_gradient=False)
        if not 0 <= probability <= 1:
            raise OptionError(
                f"probability {probability} is not in 0..1", fix="choose for instance 0.5"
            )
        self.probability = probability

    def quantize(self, x: Tensor) -> Tensor:
        """Round all elements, or a random part of them in training mode."""
        y = super().quantize(x)
        if not self.training or self.probability == 1:
            return y
        return torch.where(torch.rand_like(x) < self.probability, y, x)
