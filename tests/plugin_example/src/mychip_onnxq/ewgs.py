"""Element-wise gradient scaling (Lee et al., 2021): a third-party fake-quantize algorithm.

    v  = x / s + z
    y  = (clamp(round(v), lo, hi) - z) * s
    dx = dy * (1 + d * sign(dy) * (v - round(v)))    if lo <= v <= hi, else 0

Rounding moved x up or down. A gradient that agrees with that move is made smaller, one that
disagrees larger, so values near a border cross it sooner. d = 0 is straight-through.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from torch_bridge.fake_quant import FakeQuantize, QuantizerSpec, Rounding
from torch_bridge.observers import Observer


class EwgsRound(Rounding):
    """Rounds like every algorithm; the gradient is that of the formula, d is `ctx.option`."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of x; none of scale, zero point, grid and option."""
        x, scale, zero_point = ctx.saved_tensors
        grid, d = ctx.grid, ctx.option
        v = x / grid.spread(scale, x) + grid.spread(zero_point, x)
        inside = (v >= grid.lo) & (v <= grid.hi)
        dx = torch.where(inside, dy * (1 + d * dy.sign() * (v - v.round())), 0.0)
        return dx.to(dy.dtype), None, None, None, None


class Ewgs(FakeQuantize):
    """Rounding with gradients scaled by the rounding error; `strength` is d of the formula."""

    algorithm: ClassVar[str] = "ewgs"

    def __init__(
        self, spec: QuantizerSpec, observer: Observer, name: str = "", *, strength: float = 0.2
    ) -> None:
        super().__init__(spec, observer, name)
        if not 0 <= strength < 1:
            raise OptionError(f"strength is {strength}", fix="choose 0 <= strength < 1")
        self.strength = strength

    def quantize(self, x: Tensor) -> Tensor:
        """`x` on the grid, with the gradient above."""
        return EwgsRound.apply(x, self.scale, self.zero_point, self.spec.grid, self.strength)
