r"""The clipping threshold whose grid changes the distribution of |x| least (relative entropy).

Let h be the histogram of |x| over all data except exact zeros, which every grid contains and which
would dominate after a ReLU, and L the number of magnitudes that the codes can distinguish. For a
threshold at bin i, P is h[:i] with everything beyond i added to its last bin. Q is h[:i] merged
into L equal groups and spread again, each group evenly over its bins that are not empty. Both are
normalised, and a little of the uniform distribution is mixed into Q, so values clipped into an
empty bin have a high but finite cost:

    KL(i) = sum_j P_j * ln(P_j / Q'_j),    Q' = (1 - eps) * Q + eps / i,    eps = 1e-4

The threshold T is the upper edge of the bin i of least KL, among every `stride`-th i from L on and
the last bin in use, which clips nothing. The range is max(min, -T) .. min(max, T). If at most L
bins are in use, nothing is clipped: there would be nothing to gain.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.histogram import Histogram
from torch_bridge.observers.reduce import total

MIXED_IN = 1e-4


class HistogramKL(Histogram):
    """Entropy calibration over a histogram of all values seen.

    Args:
        bins: Number of bins, a power of two; half of them for each sign.
        stride: Distance between compared thresholds, in bins.
    """

    observer: ClassVar[str] = "histogram-kl"

    def __init__(self, spec: QuantizerSpec, *, bins: int = 4096, stride: int = 16) -> None:
        super().__init__(spec, bins=bins)
        if stride < 1:
            raise OptionError(f"stride is {stride}", fix="choose at least 1")
        self.stride = stride

    def count(self, rows: Tensor, exponent: Tensor) -> Tensor:
        """Counts of the values that are not 0."""
        counts = super().count(rows, exponent)
        counts[..., self.bins // 2] -= total((rows == 0).sum(-1))
        return counts

    def range(self) -> tuple[Tensor, Tensor]:
        """The clipped range."""
        threshold = self._best_bin() * self.width()
        low = torch.maximum(self.min_val.double(), -threshold)
        return low, torch.minimum(self.max_val.double(), threshold)

    def _best_bin(self) -> Tensor:
        half = self.bins // 2
        magnitudes = self.counts[..., half:] + self.counts[..., :half].flip(-1)
        rows = magnitudes.reshape(-1, half).double()
        used = torch.where(rows > 0, torch.arange(1, half + 1, device=rows.device), 0).amax(-1)
        levels = self._levels().reshape(-1)
        best = torch.full_like(used, half)
        for level in set(levels.tolist()):  # one value, or two if some channels have one sign
            some = (levels == level) & (used > level)
            if some.any():
                best[some] = self._search(rows[some], used[some], level)
        return best.reshape(self.exponent.shape)

    def _levels(self) -> Tensor:
        """The number of magnitudes that the codes can distinguish, for each row."""
        codes = self.spec.levels
        signed = torch.full_like(self.exponent, max(1, codes // 2))
        if self.spec.symmetric:
            return signed if self.spec.lo < 0 else signed.fill_(codes)
        one_sign = (self.min_val >= 0) | (self.max_val <= 0)
        return torch.where(one_sign, codes, signed)

    def _search(self, rows: Tensor, used: Tensor, levels: int) -> Tensor:
        """The bin of least divergence for rows that use more than `levels` bins."""
        least = torch.empty_like(used, dtype=torch.float64)
        for i in set(used.tolist()):  # without clipping, at each row's own bin
            some = used == i
            least[some] = Magnitudes(rows[some]).divergence(i, levels)
        best, magnitudes = used.clone(), Magnitudes(rows)
        for i in range(levels, int(used.max()), self.stride):
            now = magnitudes.divergence(i, levels)
            better = (now < least) & (i < used)
            best, least = torch.where(better, i, best), torch.where(better, now, least)
        return best


class Magnitudes:
    """Histograms of magnitudes, shape (rows, bins), and their divergence at a threshold.

    Within a group Q' has one value for all bins that are not empty, so the sum over bins of
    P_j ln Q'_j is a sum over groups. With running sums of h, of h ln h and of the filled bins, a
    threshold takes time for `levels` groups instead of `i` bins.
    """

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.sums = _running(rows)
        self.filled = _running((rows > 0).double())
        self.entropies = _running(torch.xlogy(rows, rows))

    def divergence(self, i: int, levels: int) -> Tensor:
        """KL(i) of each row."""
        # Bin j is in group j * levels // i, so group g starts at bin ceil(g * i / levels).
        edges = -(torch.arange(levels + 1, device=self.rows.device) * -i // levels)
        group = self.sums[:, edges].diff(dim=-1)
        filled = self.filled[:, edges].diff(dim=-1)
        everything, inside = self.sums[:, -1], self.sums[:, i]
        beyond, last = everything - inside, self.rows[:, i - 1]
        q = group / filled.clamp(min=1) / inside.clamp(min=1)[:, None]  # inside may be empty
        q = (1 - MIXED_IN) * q + MIXED_IN / i
        q_last = torch.where(last > 0, q[:, -1], MIXED_IN / i)
        p_ln_p = self.entropies[:, i - 1] + torch.xlogy(last + beyond, last + beyond)
        p_ln_q = torch.xlogy(group, q).sum(-1) + torch.xlogy(beyond, q_last)
        return (p_ln_p - p_ln_q) / everything - everything.log()


def _running(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, 2, ... columns."""
    return torch.nn.functional.pad(values.cumsum(-1), (1, 0))
