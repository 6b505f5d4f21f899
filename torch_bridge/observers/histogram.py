r"""A histogram of all values seen, independent of their order and of their split into batches.

One row of `bins` counts per scale. Bin i covers [(i - bins/2) * w, (i + 1 - bins/2) * w) with
w = 2^(e + 1) / bins and 2^e the smallest power of two above every |x|. For a larger value, e grows
by k and 2^k neighbouring bins become one. All edges are multiples of a power of two, so no count is
ever split or moved to a wrong bin: the state after any sequence of batches, on any number of
processes, is that of one histogram over all the data.

Memory: 8 * bins bytes per tensor or channel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.base import Observer
from torch_bridge.observers.reduce import total

SMALLEST_EXPONENT = -100
"""Values below 2^-100 share the bins at zero; the bin width stays a normal float32."""


class Histogram(Observer):
    """Base of the observers that decide from a histogram of all data.

    Args:
        bins: Number of bins, a power of two.
    """

    counts: Tensor
    exponent: Tensor

    def __init__(self, spec: QuantizerSpec, *, bins: int = 4096) -> None:
        super().__init__(spec)
        if not 16 <= bins <= 65536 or bins & (bins - 1):
            raise OptionError(f"bins is {bins}", fix="choose a power of two from 16 to 65536")
        self.bins = bins
        self.remember("counts", torch.zeros(bins, dtype=torch.int64))
        self.remember("exponent", torch.tensor(SMALLEST_EXPONENT, dtype=torch.int32))

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range of the batch; its values are counted."""
        peak = torch.maximum(low.abs(), high.abs())
        # frexp: peak = m * 2^e with 1/2 <= m < 1, hence peak < 2^e, even if peak is 2^(e-1)
        exponent = peak.frexp().exponent.clamp(min=SMALLEST_EXPONENT)
        exponent = torch.where(peak > 0, exponent, SMALLEST_EXPONENT)
        exponent = torch.maximum(exponent, self.exponent)
        self.counts = self._widened(exponent) + self.count(rows, exponent)
        self.exponent = exponent
        return low, high

    def count(self, rows: Tensor, exponent: Tensor) -> Tensor:
        """Counts of `rows` over all processes, in bins for values below 2^exponent."""
        half = self.bins // 2
        # Exact: dividing by a power of two changes only the exponent.
        index = (rows / self._width(exponent).float()[..., None]).floor_().clamp_(-half, half - 1)
        return total(count_bins(index.to(torch.int64) + half, self.bins))

    def width(self) -> Tensor:
        """Width of a bin in float64, exact."""
        return self._width(self.exponent)

    def _width(self, exponent: Tensor) -> Tensor:
        return torch.exp2(exponent.double() + 1) / self.bins

    def _widened(self, exponent: Tensor) -> Tensor:
        """The old counts in bins 2^(exponent - old exponent) times as wide."""
        k = (exponent - self.exponent).clamp(max=62).to(torch.int64)
        old = torch.arange(self.bins, device=k.device) - self.bins // 2
        new = (old >> k[..., None]) + self.bins // 2  # an arithmetic shift rounds down, as needed
        return torch.zeros_like(new).scatter_add_(-1, new, self.counts.expand_as(new))


def count_bins(index: Tensor, bins: int) -> Tensor:
    """Counts of 0..bins-1 in each row of `index`, shape (*S, n) to (*S, bins)."""
    rows = index.shape[:-1]
    flat = index.reshape(rows.numel(), index.shape[-1])
    offset = torch.arange(len(flat), device=index.device)[:, None] * bins
    counts = torch.bincount((flat + offset).flatten(), minlength=len(flat) * bins)
    return counts.reshape(*rows, bins)
