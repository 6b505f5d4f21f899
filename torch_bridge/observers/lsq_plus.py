r"""Initial scale and offset of LSQ+, from the latest batch.

    symmetric    s = max(|mu - 3 sigma|, |mu + 3 sigma|) / 2^(b - 1),    z = 0
    affine       s and z of the range min..max

2^(b - 1) is half the number of codes, (hi - lo + 1) / 2, or all of them if lo >= 0: then no code is
spent on negative values.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers import scales
from torch_bridge.observers.last_batch import LastBatch
from torch_bridge.observers.moments import mean_and_std


class LSQPlus(LastBatch):
    """The scale and offset that LSQ+ starts training from."""

    observer: ClassVar[str] = "lsq-plus"
    only_a_start: ClassVar[bool] = True

    mean: Tensor
    std: Tensor

    def __init__(self, spec: QuantizerSpec) -> None:
        super().__init__(spec)
        self.remember("mean", torch.tensor(0.0))
        self.remember("std", torch.tensor(0.0))

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range of the batch; its mean and standard deviation are stored."""
        self.mean, self.std = (value.float() for value in mean_and_std(rows))
        return low, high

    def scale(self) -> Tensor:
        """Three standard deviations over half the codes, or the range over all of them."""
        spec = self.spec
        if not spec.symmetric:
            return super().scale()
        mean, reach = self.mean.double(), 3 * self.std.double()
        codes = spec.levels / (2 if spec.lo < 0 else 1)
        return scales.usable(
            torch.maximum((mean - reach).abs(), (mean + reach).abs()) / codes, spec
        )
