"""NNIE's logarithmic grid: 16 values per octave, 8 octaves below the largest magnitude c.

    Z = R(16 * log2 c) - 127
    x > 2^((Z - 16)/16):    y =  2^((clamp(R(16 * log2 x) - Z, 0, 127) + Z)/16)
    x < -2^((Z - 15)/16):   y = -2^((clamp(R(16 * log2 -x) - Z, 1, 127) + Z)/16)
    else                    y = 0
    dx = dy

Code 0 of the negative side means 0, hence the clamp at 1. Values down to half the smallest
magnitude round up to it. Computed in float64. c is the range of the observer.

Such a grid has neither scale nor zero point. It is exported as one `onnxq::FakeQuantizeLog` node
instead of a `FakeQuantize`, which computes the same codes in any onnxruntime. Backends without such
a grid refuse the model and name its tensors.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from onnxq.quant.qparams import QParams
from torch_bridge.arithmetic.functional import TensorFunction
from torch_bridge.arithmetic.onnx_node import dynamo_log_node, is_dynamo_export, script_log_node
from torch_bridge.fake_quant.base import FakeQuantize


class Nnie(FakeQuantize):
    """Rounding to powers of 2^(1/16)."""

    algorithm: ClassVar[str] = "nnie"
    symmetric_only: ClassVar[bool] = True
    ranges_per: ClassVar[tuple[str, ...]] = ("tensor",)
    takes_gain: ClassVar[bool] = False

    data_max: Tensor

    def set_up(self) -> None:
        """Add c."""
        self.register_buffer("data_max", torch.ones(()))

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start from the largest magnitude of this grid."""
        super().set_range(scale, zero_point)
        reach = (self.spec.hi - self.spec.lo) / 2 if self.spec.lo < 0 else self.spec.hi
        self._set("data_max", scale.double() * reach)

    def on_grid(self, x: Tensor, gain: Tensor | None = None) -> Tensor:
        """`x` on the logarithmic grid."""
        if is_dynamo_export():
            return dynamo_log_node(x, self.data_max)
        return _Logarithmic.apply(x, self.data_max)

    def qparams(self, tensor: str) -> QParams:
        """Refused: the grid has no scale. `data_max` is its parameter."""
        raise OptionError(
            f"quantizer '{self.name or '?'}': a logarithmic grid has no scale and zero point",
            fix="read data_max instead",
        )


def logarithmic(x: Tensor, data_max: Tensor) -> Tensor:
    """`x` on the grid whose largest magnitude is `data_max`."""
    base = torch.round(16 * torch.log2(data_max.double())) - 127
    wide = x.double()
    # 0 has no logarithm; it is neither positive nor negative below.
    magnitude = wide.abs().clamp(min=torch.finfo(torch.float64).tiny)
    code = torch.round(16 * torch.log2(magnitude)) - base
    up = torch.pow(2.0, (code.clamp(0, 127) + base) / 16)
    down = -torch.pow(2.0, (code.clamp(1, 127) + base) / 16)
    positive = wide > torch.pow(2.0, (base - 16) / 16)
    negative = wide < -torch.pow(2.0, (base - 15) / 16)
    return torch.where(positive, up, torch.where(negative, down, 0.0)).to(x.dtype)


class _Logarithmic(TensorFunction):
    @staticmethod
    def forward(ctx: Any, x: Tensor, data_max: Tensor) -> Tensor:
        return logarithmic(x, data_max)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return dy, None

    @staticmethod
    def symbolic(g: Any, x: Any, data_max: Any) -> Any:
        return script_log_node(g, x, data_max)
