"""NNIE's logarithmic grid: 16 values per octave, 8 octaves below the largest magnitude c.

    Z = R(16 * log2 c) - 127
    x > 2^((Z - 16)/16):    y =  2^((clamp(R(16 * log2 x) - Z, 0, 127) + Z)/16)
    x < -2^((Z - 15)/16):   y = -2^((clamp(R(16 * log2 -x) - Z, 1, 127) + Z)/16)
    else                    y = 0
    dx = dy

Code 0 of the negative side means 0, hence the clamp at 1; values down to half the smallest
magnitude round up to it. Computed in float64. c is the range of the observer.

Such a grid has neither scale nor zero point. It is exported as one `onnxq::FakeQuantizeLog` node,
which computes the same codes in any onnxruntime, instead of a `FakeQuantize`. Only a target that
has such a grid can be converted to: others name every tensor of it and refuse.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from onnxq.errors import OptionError
from onnxq.quant.qparams import QParams, Role
from torch_bridge.arithmetic.functional import TensorFunction
from torch_bridge.arithmetic.onnx_node import dynamo_log_node, is_dynamo_export, script_log_node
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.fake_quant.base import FakeQuantize
from torch_bridge.observers.base import Observer


class Nnie(FakeQuantize):
    """Rounding to powers of 2^(1/16)."""

    algorithm: ClassVar[str] = "nnie"

    data_max: Tensor

    def __init__(self, spec: QuantizerSpec, observer: Observer, name: str = "") -> None:
        super().__init__(spec, observer, name)
        if spec.per_channel or not spec.symmetric:
            raise OptionError(
                "'nnie' has one symmetric range per tensor",
                fix="make the spec symmetric and per tensor",
            )
        self.register_buffer("data_max", torch.ones(()))

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start from the magnitude that this grid reaches."""
        super().set_range(scale, zero_point)
        reach = (self.spec.hi - self.spec.lo) / 2 if self.spec.lo < 0 else self.spec.hi
        self._set("data_max", scale.double() * reach)

    def on_grid(self, x: Tensor) -> Tensor:
        """`x` on the logarithmic grid."""
        if is_dynamo_export():
            return dynamo_log_node(x, self.data_max)
        return _Logarithmic.apply(x, self.data_max)

    def qparams(self, tensor: str, role: Role = Role.ACTIVATION) -> QParams:
        """Not possible: the grid has no scale. `data_max` is its parameter."""
        raise OptionError(
            f"quantizer '{self.name or '?'}': a logarithmic grid has no scale and zero point",
            fix="read data_max instead",
        )


def logarithmic(x: Tensor, data_max: Tensor) -> Tensor:
    """`x` on the grid whose largest magnitude is `data_max`."""
    base = torch.round(16 * torch.log2(data_max.double())) - 127
    wide = x.double()
    # Of 0 the logarithm is not taken: it lies on neither side.
    magnitude = wide.abs().clamp(min=torch.finfo(torch.float64).tiny)
    code = torch.round(16 * torch.log2(magnitude)) - base
    up = _power((code.clamp(0, 127) + base) / 16)
    down = -_power((code.clamp(1, 127) + base) / 16)
    positive = wide > _power((base - 16) / 16)
    negative = wide < -_power((base - 15) / 16)
    nothing = torch.zeros_like(wide)
    return torch.where(positive, up, torch.where(negative, down, nothing)).to(x.dtype)


def _power(exponent: Tensor) -> Tensor:
    return torch.pow(2.0, exponent)


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
