"""Trained quantization thresholds (Jain et al., 2020): scales are powers of two, and learn.

The parameter is the logarithm e of the threshold; with m = 2^ceil(log2(hi + 1)):

    s  = 2^ceil(e) / m
    y  = clamp(R(x/s), lo, hi) * s                      zero points are 0
    dx = dy where lo <= R(x/s) <= hi, else 0
    de = ln 2 * s * Σ dy * (R(x/s) - x/s in range, lo below, hi above)

The ceiling is passed straight through. Rounding is half to even, as in ONNX.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.functional import TensorFunction, operands
from torch_bridge.arithmetic.grid import Grid, working_type
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.fake_quant.base import FakeQuantize
from torch_bridge.observers.base import Observer

_SMALLEST, _LARGEST = -120.0, 120.0  # exponents whose scales float32 holds, with room for hi


class Tqt(FakeQuantize):
    """The power of two learns."""

    algorithm: ClassVar[str] = "tqt"

    log2_threshold: Tensor

    def __init__(self, spec: QuantizerSpec, observer: Observer, name: str = "") -> None:
        super().__init__(spec, observer, name)
        if not spec.symmetric:
            raise OptionError(
                "'tqt' has no zero points, but the spec is asymmetric",
                fix="make it symmetric (codes from 0 up for values that are never negative)",
            )
        self.learn("log2_threshold", torch.zeros(()))

    def quantize(self, x: Tensor) -> Tensor:
        """Round; the logarithm of the threshold learns."""
        return _Threshold.apply(x, self.log2_threshold, self.scale, self.zero_point, self.spec.grid)

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start from this scale, or from the power of two above it.

        A power of two is on the edge of the ceiling, where the smallest step upwards would double
        it; it starts from the middle of the interval that gives it.
        """
        super().set_range(scale, zero_point)
        exponent = torch.log2(scale.double()) + self._magnitude()
        whole = exponent.round()
        exact = (exponent - whole).abs() < 1e-6
        self._set("log2_threshold", torch.where(exact, whole - 0.5, exponent))
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Make the scale from the threshold."""
        self.log2_threshold.data.clamp_(_SMALLEST, _LARGEST)
        exponent = self.log2_threshold.ceil().sub_(self._magnitude())
        # ldexp is exact, exp2 need not be.
        self._set("scale", torch.ldexp(torch.ones_like(exponent), exponent.to(torch.int32)))

    def _magnitude(self) -> int:
        return math.ceil(math.log2(self.spec.hi + 1))


class _Threshold(TensorFunction):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, exponent: Tensor, scale: Tensor, zero_point: Tensor, grid: Grid
    ) -> Tensor:
        ctx.save_for_backward(values, exponent, scale)
        ctx.grid = grid
        kernels, x, s, z = operands(values, scale, zero_point, grid)
        return kernels.forward(x, s, z, grid.lo, grid.hi).to(values.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        values, exponent, scale = ctx.saved_tensors
        grid = ctx.grid
        dtype = working_type(values)
        s = grid.spread(scale.to(dtype), values)
        v = values.to(dtype) / s
        code = v.round()
        inside = (code >= grid.lo) & (code <= grid.hi)
        dy_wide = dy.to(dtype)
        terms = dy_wide * torch.where(inside, code - v, code.clamp(grid.lo, grid.hi))
        de = grid.gather(terms * s, exponent) * math.log(2)
        dx = torch.where(inside, dy_wide, 0.0)
        return dx.to(dy.dtype), de.to(exponent.dtype), None, None, None
