r"""Moving average of the ranges of the batches.

m <- ratio * m + (1 - ratio) * m_batch, starting with the first batch
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.base import Observer


class EmaMinMax(Observer):
    """Moving average of minimum and maximum; base of the other averaging observers.

    Args:
        ema_ratio: Weight of the past, 0 <= ratio < 1.
    """

    observer: ClassVar[str] = "ema-minmax"

    def __init__(self, spec: QuantizerSpec, *, ema_ratio: float = 0.9) -> None:
        super().__init__(spec)
        if not 0 <= ema_ratio < 1:
            raise OptionError(f"ema_ratio is {ema_ratio}", fix="choose 0 <= ema_ratio < 1")
        self.ema_ratio = ema_ratio

    def merge(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The averaged range."""
        if not self.ready:
            return low, high
        old, new = self.ema_ratio, 1 - self.ema_ratio
        return old * self.min_val + new * low, old * self.max_val + new * high
