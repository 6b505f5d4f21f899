r"""The range of least error in each batch.

For each batch, f* = argmin_f sum |fq(x; f * min, f * max) - x|^power over the factors
f = 1, 0.99, 0.98, ... (`candidates` of them; the widest of equal ranges). fq rounds to the grid
that `scales` gives to the range. The batch asks for f* * min .. f* * max, and the result covers the
ranges of all batches.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers import scales
from torch_bridge.observers.base import Observer
from torch_bridge.observers.grid_error import grid_error

CANDIDATES = 95
STEP = 0.01


class MSE(Observer):
    """The union of the ranges of least error in each batch.

    Args:
        candidates: Number of factors tried, at most 100.
        power: Exponent of the error; 2 for the mean squared error.
    """

    observer: ClassVar[str] = "mse"

    def __init__(
        self, spec: QuantizerSpec, *, candidates: int = CANDIDATES, power: float = 2.0
    ) -> None:
        super().__init__(spec)
        check_search(candidates, power)
        self.candidates = candidates
        self.power = power

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The best of the shrunken ranges."""
        return best_range(rows, low, high, self.spec, self.candidates, self.power)


def check_search(candidates: int, power: float) -> None:
    """Refuse meaningless options."""
    if not 1 <= candidates <= round(1 / STEP):
        raise OptionError(f"candidates is {candidates}", fix="choose 1 to 100")
    if not power > 0:
        raise OptionError(f"power is {power}", fix="choose a positive power, such as 2")


def best_range(
    rows: Tensor, low: Tensor, high: Tensor, spec: QuantizerSpec, candidates: int, power: float
) -> tuple[Tensor, Tensor]:
    """The shrunken range of least error, for every row at once."""
    factor = 1 - STEP * torch.arange(candidates, dtype=torch.float64, device=low.device)
    factor = factor.reshape(-1, *[1] * low.ndim)
    lows, highs = factor * low, factor * high
    scale = scales.scale_of(lows, highs, spec)
    zero_point = scales.zero_point_of(lows, scale, spec)
    best = grid_error(rows, scale, zero_point, spec, power=power).argmin(0, keepdim=True)
    return lows.gather(0, best)[0].float(), highs.gather(0, best)[0].float()
