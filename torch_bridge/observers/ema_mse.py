"""Moving average of the ranges of least error in each batch."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.ema_minmax import EmaMinMax
from torch_bridge.observers.mse import CANDIDATES, best_range, check_search


class EmaMSE(EmaMinMax):
    """The search of `MSE`, averaged over the batches.

    Args:
        candidates: Number of factors tried, at most 100.
        power: Exponent of the error.
        ema_ratio: Weight of the past.
    """

    observer: ClassVar[str] = "ema-mse"

    def __init__(
        self,
        spec: QuantizerSpec,
        *,
        candidates: int = CANDIDATES,
        power: float = 2.0,
        ema_ratio: float = 0.9,
    ) -> None:
        super().__init__(spec, ema_ratio=ema_ratio)
        check_search(candidates, power)
        self.candidates = candidates
        self.power = power

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The best of the shrunken ranges."""
        return best_range(rows, low, high, self.spec, self.candidates, self.power)
