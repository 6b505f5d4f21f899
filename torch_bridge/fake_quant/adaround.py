"""Learned rounding of weights (AdaRound, Nagel et al., 2020).

Each weight is rounded down or up, whichever reconstructs better. With a parameter a per weight and
the stretched sigmoid h(a) = clamp(1.2 * sigmoid(a) - 0.1, 0, 1):

    soft   y = (clamp(floor(x/s) + h(a) + z, lo, hi) - z) * s
    hard   y = (clamp(floor(x/s) + [a >= 0] + z, lo, hi) - z) * s
    da     = dy * s * 1.2 * sigmoid(a) * (1 - sigmoid(a))     if neither clamp acts, else 0
    dx     = 0

Until `start` weights are rounded to the nearest code, in evaluation only: this is no algorithm for
training, and says so if a gradient is asked for. What it needs is a reconstruction, layer by layer,
in which only a learns, by the difference to the float layer's result.

`start` sets a such that h(a) = x/s - floor(x/s), which rounds nothing yet. `penalty` drives h to 0
or 1. `harden` makes the choice final.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from torch_bridge.arithmetic.onnx_node import is_export
from torch_bridge.fake_quant.base import FakeQuantize

_STRETCH, _SHIFT = 1.2, -0.1


class AdaRound(FakeQuantize):
    """The direction in which each weight is rounded learns.

    Attributes:
        started: whether the rounding learns, or has learned.
        hard: whether it is final.
    """

    algorithm: ClassVar[str] = "adaround"
    weights_only: ClassVar[bool] = True
    per_element: ClassVar[frozenset[str]] = frozenset({"rounding"})

    switches: ClassVar[tuple[str, ...]] = (*FakeQuantize.switches, "started", "hard")

    rounding: Tensor

    def set_up(self) -> None:
        """Add a, without elements until `start`."""
        self.started = self.hard = False
        self.learn("rounding", torch.zeros(0))

    @torch.no_grad()
    def start(self, weight: Tensor) -> None:
        """Let the rounding of `weight` learn, starting from the unrounded weight."""
        self._require_range()
        s = self.spread(self.scale, weight)
        part = weight / s - (weight / s).floor()
        # The inverse of h; part lies in 0..1, so the argument of the logarithm is positive.
        self._set("rounding", -torch.log(_STRETCH / (part - _SHIFT) - 1))
        self.started, self.hard = True, False

    def harden(self) -> None:
        """Round each weight in the direction that it has learned, from now on."""
        self.hard = True

    def share(self) -> Tensor:
        """h(a): the position of each weight between its two codes, 0 to 1."""
        if self.hard:
            return (self.rounding >= 0).to(self.rounding.dtype)
        return (torch.sigmoid(self.rounding) * _STRETCH + _SHIFT).clamp(0, 1)

    def penalty(self, exponent: float) -> Tensor:
        """Σ 1 - |2h - 1|^exponent: 0 when every weight has chosen."""
        return (1 - (2 * self.share() - 1).abs().pow(exponent)).sum()

    def transform(self, x: Tensor) -> Tensor:
        """`x` rounded as learned."""
        if not self.started:
            return x
        if is_export():
            if not self.hard:
                raise self._error(
                    "still rounds softly, between two codes",
                    "call harden() after the reconstruction",
                )
        elif self.rounding.shape != x.shape:
            raise self._error(
                f"learned to round a weight of shape {list(self.rounding.shape)}, "
                f"not {list(x.shape)}",
                "use it for the weight that start() was given",
            )
        s, z = self.spread(self.scale, x), self.spread(self.zero_point, x)
        code = (x.detach() / s).floor() + self.share() + z
        return (code.clamp(self.spec.lo, self.spec.hi) - z) * s

    def quantize(self, x: Tensor) -> Tensor:
        """Round as learned, or to the nearest code before `start`."""
        learning = self.training and x.requires_grad and torch.is_grad_enabled()
        if learning and not self.started:
            raise self._error(
                "is 'adaround', which learns by reconstruction and not in training",
                "call start(weight) and train `rounding` against the float layer's results, then "
                "harden(); to train the network choose 'lsq'",
            )
        return self.transform(x) if self.started else self.on_grid(x)
