r"""The range that contains a given share of all values seen, on each side.

With F(b) the share of values in bins up to b (see `histogram`),

    max = upper edge of the first bin with F(b) >= quantile, but at most the largest value seen
    min = the same for -x, negated

so at least that share of the values is <= max, and less than it is a bin width below max.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.histogram import Histogram


class Percentile(Histogram):
    """Two-sided quantile of all values seen.

    Args:
        quantile: Share of the values that each end does not clip, 0.5 < quantile <= 1.
        bins: Number of bins, a power of two.
    """

    observer: ClassVar[str] = "percentile"

    def __init__(self, spec: QuantizerSpec, *, quantile: float = 0.9999, bins: int = 4096) -> None:
        super().__init__(spec, bins=bins)
        if not 0.5 < quantile <= 1:
            raise OptionError(f"quantile is {quantile}", fix="choose 0.5 < quantile <= 1")
        self.quantile = quantile

    def range(self) -> tuple[Tensor, Tensor]:
        """The quantiles, within the values seen."""
        high = torch.minimum(self._upper(self.counts), self.max_val.double())
        low = torch.maximum(-self._upper(self.counts.flip(-1)), self.min_val.double())
        return low, high

    def _upper(self, counts: Tensor) -> Tensor:
        share = counts.cumsum(-1).double() / counts.sum(-1, keepdim=True)
        first = (share < self.quantile).sum(-1)
        return (first + 1 - self.bins // 2) * self.width()
