r"""The power of two of least error on the latest batch.

The scale is 2^-e. The search starts at the finest grid that clips nothing,

    e0 = floor(-log2 s0),   s0 = max(min / lo, max / hi)   (affine: (max - min) / (hi - lo)),

and takes, of e0 .. e0 + tries - 1, the exponent with the least sum (fq(x) - x)^2, the lowest of
equal ones. e is at most `max_exponent`, the finest grid of fixed-point targets, which is also that
of an all-zero tensor. The errors are summed while the batch is seen; no tensor is kept.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers import scales
from torch_bridge.observers.grid_error import grid_error
from torch_bridge.observers.last_batch import LastBatch

MIN_EXPONENT = -120
"""Scales up to 2^120: beyond what float32 data needs, within what float32 holds."""


class MinMaxFloor(LastBatch):
    """Power-of-two scale of least squared error on the latest batch.

    Args:
        tries: Number of exponents compared; 1 never clips, as needed for network inputs.
        max_exponent: The finest scale is 2^-max_exponent.
    """

    observer: ClassVar[str] = "minmax-floor"

    exponent: Tensor

    def __init__(self, spec: QuantizerSpec, *, tries: int = 5, max_exponent: int = 12) -> None:
        super().__init__(spec)
        if tries < 1:
            raise OptionError(f"tries is {tries}", fix="compare at least one exponent")
        if not 0 <= max_exponent <= -MIN_EXPONENT:
            raise OptionError(f"max_exponent is {max_exponent}", fix=f"choose 0 to {-MIN_EXPONENT}")
        self.tries = tries
        self.max_exponent = max_exponent
        self.remember("exponent", torch.tensor(0, dtype=torch.int32))

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range of the batch; its best exponent is stored."""
        self.exponent = self.best_exponent(rows, low, high)
        return low, high

    def scale(self) -> Tensor:
        """2^-e."""
        return torch.exp2(-self.exponent.double())

    def best_exponent(self, rows: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """The exponent of least error for every row, int32."""
        finest = self._covering_scale(low, high).clamp(min=2.0**-self.max_exponent)
        # frexp is exact, while a logarithm may be off by one: s = m * 2^k with 1/2 <= m < 1, so
        # ceil(log2 s) is k, or k - 1 if s is 2^(k-1) itself.
        mantissa, power = finest.frexp()
        start = -torch.where(mantissa == 0.5, power - 1, power)
        tries = torch.arange(self.tries, device=low.device).reshape(-1, *[1] * low.ndim)
        exponents = (start + tries).clamp(MIN_EXPONENT, self.max_exponent)
        scale = torch.exp2(-exponents.double())
        zero_point = scales.zero_point_of(low, scale, self.spec)
        best = grid_error(rows, scale, zero_point, self.spec).argmin(0, keepdim=True)
        return exponents.gather(0, best)[0].to(torch.int32)

    def _covering_scale(self, low: Tensor, high: Tensor) -> Tensor:
        spec, low, high = self.spec, low.double().clamp(max=0), high.double().clamp(min=0)
        if not spec.symmetric:
            return (high - low) / (spec.hi - spec.lo)
        if spec.lo >= 0:
            return high / spec.hi
        return torch.maximum(low / spec.lo, high / spec.hi)
