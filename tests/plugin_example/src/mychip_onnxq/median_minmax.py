"""A third-party observer: the median, over batches, of the extremes of a batch.

    min = median of the minima of the latest `window` batches
    max = median of their maxima

One batch with an outlier does not move the range.
"""

from typing import ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.observers import Observer, QuantizerSpec


class MedianMinMax(Observer):
    """Median of the extremes of the latest batches.

    Args:
        window: Number of batches.
    """

    observer: ClassVar[str] = "median-minmax"

    lows: Tensor
    highs: Tensor

    def __init__(self, spec: QuantizerSpec, *, window: int = 64) -> None:
        super().__init__(spec)
        if window < 1:
            raise OptionError(f"window is {window}", fix="choose at least 1 batch")
        self.window = window
        self.remember("lows", torch.full((window,), torch.nan))
        self.remember("highs", torch.full((window,), torch.nan))

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The extremes of the batch, which are kept."""
        at = int(self.batches) % self.window
        self.lows = self._kept(self.lows, at, low)
        self.highs = self._kept(self.highs, at, high)
        return low, high

    def range(self) -> tuple[Tensor, Tensor]:
        """The medians."""
        return self.lows.nanmedian(-1).values, self.highs.nanmedian(-1).values

    def _kept(self, values: Tensor, at: int, value: Tensor) -> Tensor:
        """`values`, one row for each scale, with `value` as number `at` of each row."""
        values = values.expand(*value.shape, self.window).clone()
        values[..., at] = value
        return values
