r"""The range of the latest batch, clipped at some standard deviations from the mean.

min = max(min(x), mu - k * sigma),    max = min(max(x), mu + k * sigma),    k = 2.6
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.last_batch import LastBatch
from torch_bridge.observers.moments import mean_and_std


class ClipStd(LastBatch):
    """Mean plus and minus `std_scale` standard deviations, within the values seen.

    Args:
        std_scale: Standard deviations kept on each side.
    """

    observer: ClassVar[str] = "clip-std"

    def __init__(self, spec: QuantizerSpec, *, std_scale: float = 2.6) -> None:
        super().__init__(spec)
        if not std_scale > 0:
            raise OptionError(f"std_scale is {std_scale}", fix="choose a positive number")
        self.std_scale = std_scale

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The clipped range of the batch."""
        mu, sigma = mean_and_std(rows)
        reach = self.std_scale * sigma
        return torch.maximum(low, mu - reach).float(), torch.minimum(high, mu + reach).float()
