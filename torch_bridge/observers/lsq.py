r"""Initial step size of learned step size quantization, from the latest batch.

s = 2 * mean|x| / sqrt(hi),    z = 0, or clamp(lo - round(min / s)) if not symmetric
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers import scales
from torch_bridge.observers.last_batch import LastBatch
from torch_bridge.observers.moments import mean


class LSQ(LastBatch):
    """The step size that LSQ starts training from."""

    observer: ClassVar[str] = "lsq"
    only_a_start: ClassVar[bool] = True

    mean_abs: Tensor

    def __init__(self, spec: QuantizerSpec) -> None:
        super().__init__(spec)
        self.remember("mean_abs", torch.tensor(0.0))

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range of the batch; its mean magnitude is stored."""
        self.mean_abs = mean(rows.abs()).float()
        return low, high

    def scale(self) -> Tensor:
        """Twice the mean magnitude over the root of the highest code."""
        return scales.usable(2 * self.mean_abs.double() / math.sqrt(self.spec.hi), self.spec)
