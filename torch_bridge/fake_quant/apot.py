"""Additive powers of two (APoT, Li et al., 2020): levels are sums of a few powers of two.

m bits of magnitude (one bit fewer than the spec has, if it is signed) are split into terms of two
bits, and one of a single bit if m is odd. The powers 1/2, 1/4, ... are dealt to the terms in turn:
each two-bit term is one of three powers or 0, the single bit one power or 0, dealt before the last
round. Each power belongs to one term, so all 2^m sums differ. In units of the smallest power they
are integers, the largest of which is M. The clipping bound a learns:

    s  = a / M
    y  = s * sign(x) * (level nearest to |x|/s, the lower one of two)
    dx = dy where |x| < a, else 0
    da = Σ dy * ((y - x)/a where |x| < a, else sign(x))

An unsigned quantizer maps negative x to 0, without a gradient. y lies on the uniform grid of codes
-M..M, so it is exported with that grid, after the rounding to levels.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from onnxq.quant.qtypes import qtype
from torch_bridge.arithmetic.functional import TensorFunction
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.fake_quant.base import SMALLEST_SCALE, FakeQuantize
from torch_bridge.observers.base import Observer


def level_codes(bits: int) -> list[int]:
    """The levels of `bits` bits of magnitude, in units of the smallest power, ascending."""
    full, single = divmod(bits, 2)
    owners = [*range(full), *range(full), *([full] * single), *range(full)]
    terms: list[list[int]] = [[0] for _ in range(full + single)]
    for place, owner in enumerate(owners):
        terms[owner].append(1 << (len(owners) - 1 - place))
    return sorted(sum(choice) for choice in itertools.product(*terms))


class Apot(FakeQuantize):
    """The bound of a non-uniform grid learns."""

    algorithm: ClassVar[str] = "apot"
    learns_any_scale: ClassVar[bool] = True

    clip: Tensor
    levels: Tensor

    def __init__(self, spec: QuantizerSpec, observer: Observer, name: str = "") -> None:
        signed = spec.lo < 0
        bits = spec.bits - signed
        if not spec.symmetric or spec.block or not 1 <= bits <= 8:
            raise OptionError(
                f"'apot' cannot be {spec}",
                fix="make the spec symmetric, per tensor or channel, of at most 8 bits",
            )
        codes = level_codes(bits)
        wide = "int" if signed else "uint"
        held = qtype(f"{wide}8" if codes[-1] <= qtype(f"{wide}8").hi else f"{wide}16")
        uniform = QuantizerSpec(
            qtype=held,
            lo=-codes[-1] if signed else 0,
            hi=codes[-1],
            symmetric=True,
            axis=spec.axis,
            power_of_two=spec.power_of_two,
            parameter=spec.parameter,
        )
        super().__init__(uniform, observer, name)
        self.asked = spec
        self.register_buffer("levels", torch.tensor(codes, dtype=torch.float32), persistent=False)
        self.learn("clip", torch.ones(()))

    def transform(self, x: Tensor) -> Tensor:
        """`x` rounded to the nearest levels."""
        return _nearest(x, self.spread(self.scale, x), self.levels, self.spec.lo < 0)

    def quantize(self, x: Tensor) -> Tensor:
        """Round to levels; the bound learns."""
        return _Levels.apply(x, self.clip, self.scale, self.levels, self.spec)

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start from the bound of the observed grid, which has the codes of the spec asked for."""
        self._require_usable(scale)
        self._set("clip", scale * self.asked.hi)
        self._set("zero_point", torch.zeros_like(scale))
        self.initialised = True
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Keep the bound positive and derive the scale."""
        self.clip.data.abs_().clamp_(min=SMALLEST_SCALE * self.spec.hi)
        self._set("scale", self.clip / self.spec.hi)


def _nearest(x: Tensor, s: Tensor, levels: Tensor, signed: bool) -> Tensor:
    v = x / s
    size = v.abs() if signed else v
    middles = (levels[1:] + levels[:-1]) / 2
    if torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export():  # ONNX has no bucketize
        index = (size.unsqueeze(-1) > middles).sum(-1)
    else:
        index = torch.bucketize(size, middles)
    nearest = levels[index]
    # Adding 0 turns the -0 of negative values into 0.
    return (nearest * torch.sign(v) + 0.0 if signed else nearest) * s


class _Levels(TensorFunction):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, clip: Tensor, scale: Tensor, levels: Tensor, spec: QuantizerSpec
    ) -> Tensor:
        ctx.save_for_backward(x, clip, scale, levels)
        ctx.spec = spec
        return _nearest(x, spec.grid.spread(scale, x), levels, spec.lo < 0)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, clip, scale, levels = ctx.saved_tensors
        grid, signed = ctx.spec.grid, ctx.spec.lo < 0
        y = _nearest(x, grid.spread(scale, x), levels, signed)
        bound = grid.spread(clip, x)
        inside = x.abs() < bound if signed else (x >= 0) & (x < bound)
        outer = torch.sign(x) if signed else (x > 0).to(x.dtype)
        terms = dy * torch.where(inside, (y - x) / bound, outer)
        return torch.where(inside, dy, 0.0), grid.gather(terms, clip), None, None, None
