r"""The error of a tensor on each of several grids.

    error(s, z) = sum |s * (clamp(round(x / s) + z, lo, hi) - z) - x|^power

A search needs this for dozens of grids. Blocks of the tensor are compared with several grids at a
time, so temporaries have at most `BLOCK` elements and stay in the cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.reduce import total

BLOCK = 1 << 18


def grid_error(
    rows: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantizerSpec, *, power: float = 2.0
) -> Tensor:
    """Error of each grid on each row, in float64, over all processes.

    Args:
        rows: Values, shape (*rows, n).
        scale: Scales of k grids for each row, shape (k, *rows).
        zero_point: Zero points, same shape.
        spec: The codes.
        power: 2 for the squared error.
    """
    grids, n = len(scale), rows.shape[-1]
    values = rows.reshape(1, rows.shape[:-1].numel(), n)
    steps = scale.float().reshape(grids, values.shape[1], 1)
    zeros = zero_point.float().reshape(steps.shape)
    # clamp(r + z) - z = clamp(r, lo - z, hi - z), exact for these integers
    lowest, highest = spec.lo - zeros, spec.hi - zeros
    columns = max(1, min(n, BLOCK // max(1, values.shape[1])))
    batch = max(1, BLOCK // max(1, values.shape[1] * columns))
    error = torch.zeros(steps.shape[:2], dtype=torch.float64, device=rows.device)
    for start in range(0, n, columns):
        x = values[..., start : start + columns]
        for first in range(0, grids, batch):
            some = slice(first, first + batch)
            y = (x / steps[some]).round_().clamp_(lowest[some], highest[some])
            y.mul_(steps[some]).sub_(x)
            y = y.square_() if power == 2 else y.abs_().pow_(power)
            error[some] += y.sum(-1, dtype=torch.float64)
    return total(error).reshape(scale.shape)
