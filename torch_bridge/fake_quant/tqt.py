"""Trained quantization thresholds (Jain et al., 2020): scales are powers of two, and learn.

The parameter is the logarithm e of the threshold; with m = 2^ceil(log2(hi + 1)):

    s  = 2^ceil(e) / m
    y  = clamp(R(x/s), lo, hi) * s                      zero points are 0
    dx = dy if lo <= R(x/s) <= hi, else 0
    de = ln 2 * s * Σ dy * (R(x/s) - x/s in range, lo below, hi above)

The gradient passes the ceiling straight through. Rounding is half to even, as in ONNX.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from torch_bridge.arithmetic.functional import Rounding
from torch_bridge.arithmetic.grid import working_type
from torch_bridge.fake_quant.base import FakeQuantize

_SMALLEST, _LARGEST = -120.0, 120.0  # exponents whose scales float32 holds, with room for hi


class Tqt(FakeQuantize):
    """The power of two learns."""

    algorithm: ClassVar[str] = "tqt"
    symmetric_only: ClassVar[bool] = True
    powers_of_two: ClassVar[bool] = True

    log2_threshold: Tensor

    def set_up(self) -> None:
        """Add e."""
        self.learn("log2_threshold", torch.zeros(()))

    def quantize(self, x: Tensor) -> Tensor:
        """Round; the logarithm of the threshold learns."""
        return _Threshold.apply(x, self.scale, self.zero_point, self.spec.grid, self.log2_threshold)

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start from this scale, or from the next power of two above it.

        A power of two lies on the edge of the ceiling: the smallest step upwards would double it.
        It starts in the middle of the interval that gives it.
        """
        super().set_range(scale, zero_point)
        exponent = torch.log2(scale.double()) + self._magnitude()
        whole = exponent.round()
        exact = (exponent - whole).abs() < 1e-6
        self._set("log2_threshold", torch.where(exact, whole - 0.5, exponent))
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Derive the scale from the threshold."""
        self.log2_threshold.data.clamp_(_SMALLEST, _LARGEST)
        exponent = self.log2_threshold.ceil().sub_(self._magnitude())
        # ldexp is exact, exp2 need not be.
        self._set("scale", torch.ldexp(torch.ones_like(exponent), exponent.to(torch.int32)))

    def _magnitude(self) -> int:
        return math.ceil(math.log2(self.spec.hi + 1))


class _Threshold(Rounding):
    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        values, scale, _ = ctx.saved_tensors
        grid, exponent = ctx.grid, ctx.option
        dtype = working_type(values)
        s = grid.spread(scale.to(dtype), values)
        v = values.to(dtype) / s
        code = v.round()
        inside = (code >= grid.lo) & (code <= grid.hi)
        dy_wide = dy.to(dtype)
        terms = dy_wide * torch.where(inside, code - v, code.clamp(grid.lo, grid.hi))
        de = grid.gather(terms * s, exponent) * math.log(2)
        dx = torch.where(inside, dy_wide, 0.0)
        return dx.to(dy.dtype), None, None, None, de.to(exponent.dtype)
