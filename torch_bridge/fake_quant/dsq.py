"""Differentiable soft quantization (Gong et al., 2019).

Rounding is the limit of a chain of tanh curves, one per step of the grid. The forward pass rounds,
the backward pass has the slope of the curves. With v = x/s + z, f = v - floor(v):

    phi(v) = floor(v) + (1 + t * tanh(k * (f - 1/2))) / 2,   t = 1 / (1 - a),  k = ln(2/a - 1)
    y  = (clamp(R(x/s) + z, lo, hi) - z) * s                 R(phi(v)) = R(v)
    dx = dy * t * k * (1 - tanh(k * (f - 1/2))^2) / 2        if lo <= v <= hi, else 0

a in 0..1 is the distance of phi from the step function: towards 0 the curve becomes the step.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.arithmetic.functional import Rounding
from torch_bridge.arithmetic.grid import working_type
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.fake_quant.base import FakeQuantize
from torch_bridge.observers.base import Observer


class Dsq(FakeQuantize):
    """Rounding with the gradient of a chain of tanh curves; `softness` is a of the formula."""

    algorithm: ClassVar[str] = "dsq"

    def __init__(
        self, spec: QuantizerSpec, observer: Observer, name: str = "", *, softness: float = 0.4
    ) -> None:
        super().__init__(spec, observer, name)
        if not 0 < softness < 1:
            raise OptionError(
                f"softness {softness} is not between 0 and 1", fix="choose for instance 0.4"
            )
        self.softness = softness

    def quantize(self, x: Tensor) -> Tensor:
        """Round, with the soft gradient."""
        return _SoftRound.apply(x, self.scale, self.zero_point, self.spec.grid, self.softness)


class _SoftRound(Rounding):
    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        values, scale, zero_point = ctx.saved_tensors
        grid, softness = ctx.grid, ctx.option
        dtype = working_type(values)
        v = values.to(dtype) / grid.spread(scale.to(dtype), values)
        v = v + grid.spread(zero_point.to(dtype), values)
        t = 1 / (1 - softness)
        k = math.log(2 / softness - 1)
        curve = torch.tanh(k * (v - v.floor() - 0.5))
        slope = 0.5 * t * k * (1 - curve * curve)
        dx = torch.where((v >= grid.lo) & (v <= grid.hi), dy * slope, 0.0)
        return dx.to(dy.dtype), None, None, None, None
