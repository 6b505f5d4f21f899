r"""Moving average of batch ranges that were clipped at a quantile of |x|.

For each batch, |x| is counted in `bins` bins of width w = max|x| / bins. With i the first bin up
to which at least `quantile` of the values lie,

    clip = (i + 1/2) * w,    min_batch = max(min, -clip),    max_batch = min(max, clip)

and minimum and maximum are averaged over the batches.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.ema_minmax import EmaMinMax
from torch_bridge.observers.histogram import count_bins
from torch_bridge.observers.reduce import total


class EmaQuantile(EmaMinMax):
    """Moving average of the clipped ranges of the batches.

    Args:
        quantile: Share of |x| that is not clipped, 0 < quantile <= 1.
        bins: Number of bins for each batch.
        ema_ratio: Weight of the past.
    """

    observer: ClassVar[str] = "ema-quantile"

    def __init__(
        self,
        spec: QuantizerSpec,
        *,
        quantile: float = 0.99999,
        bins: int = 2048,
        ema_ratio: float = 0.9,
    ) -> None:
        super().__init__(spec, ema_ratio=ema_ratio)
        if not 0 < quantile <= 1:
            raise OptionError(f"quantile is {quantile}", fix="choose 0 < quantile <= 1")
        if bins < 1:
            raise OptionError(f"bins is {bins}", fix="choose at least one bin")
        self.quantile = quantile
        self.bins = bins

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The clipped range of the batch."""
        width = torch.maximum(low.abs(), high.abs()) / self.bins
        # An all-zero row has width 0; any divisor puts its values into bin 0.
        divisor = torch.where(width > 0, width, 1)[..., None]
        index = (rows.abs() / divisor).floor_().clamp_(max=self.bins - 1).to(torch.int64)
        counts = total(count_bins(index, self.bins))
        share = counts.cumsum(-1).double() / counts.sum(-1, keepdim=True)
        clip = ((share < self.quantile).sum(-1) + 0.5) * width
        return low.clamp(-clip, clip), high.clamp(-clip, clip)
