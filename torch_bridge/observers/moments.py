r"""Mean and standard deviation of a batch over all processes.

    mu = sum x / n,    sigma = sqrt(sum (x - mu)^2 / n)

Two passes in float64: the textbook difference of squares loses all digits if sigma << mu. The
divisor is n, not n - 1, so a single value has sigma = 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_bridge.observers.reduce import total


def mean(rows: Tensor) -> Tensor:
    """Mean of each row, float64."""
    sums = rows.sum(-1, dtype=torch.float64)
    both = total(torch.cat([sums.flatten(), sums.new_tensor([rows.shape[-1]])]))
    return (both[:-1] / both[-1]).reshape(sums.shape)


def mean_and_std(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each row, float64."""
    centre = mean(rows)
    return centre, mean((rows - centre[..., None]).square_()).sqrt()
