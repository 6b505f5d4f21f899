r"""The power of two that most batches ask for.

Each batch votes for the exponent that `minmax_floor` finds for it. The scale is 2^-e of the
exponent e with most votes, the lowest of equal ones, which clips least.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.base import Observer
from torch_bridge.observers.minmax_floor import MIN_EXPONENT, MinMaxFloor


class PoTMode(MinMaxFloor):
    """Power-of-two scale chosen by most batches.

    Args:
        tries: Number of exponents compared in each batch.
        max_exponent: The finest scale is 2^-max_exponent.
    """

    observer: ClassVar[str] = "pot-mode"

    votes: Tensor

    def __init__(self, spec: QuantizerSpec, *, tries: int = 5, max_exponent: int = 12) -> None:
        super().__init__(spec, tries=tries, max_exponent=max_exponent)
        self.remember("votes", torch.zeros(max_exponent - MIN_EXPONENT + 1, dtype=torch.int64))

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range of the batch; its best exponent gets a vote."""
        index = self.best_exponent(rows, low, high).to(torch.int64)[..., None] - MIN_EXPONENT
        one = torch.zeros(*low.shape, self.votes.shape[-1], dtype=torch.int64, device=low.device)
        self.votes = self.votes + one.scatter_(-1, index, 1)
        self.exponent = (self.votes.argmax(-1) + MIN_EXPONENT).to(torch.int32)
        return low, high

    def merge(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range of all batches, for the zero point."""
        return Observer.merge(self, low, high)
