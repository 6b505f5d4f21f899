"""Float layers, inputs and quantizers for the tests of torch_bridge.nn."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.arithmetic.functional import fake_quantize  # noqa: E402
from torch_bridge.arithmetic.grid import Grid  # noqa: E402


@dataclass(frozen=True)
class Case:
    """One kind of layer: its classes, arguments and an input shape."""

    name: str
    layer: Any
    norm: Any
    args: tuple[int, ...]
    shape: tuple[int, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        return self.layer.__name__

    @property
    def fused(self) -> Any:
        return getattr(qnn, f"Fused{self.stem}")

    @property
    def qat(self) -> Any:
        return getattr(qnn, f"Qat{self.stem}")

    @property
    def fused_qat(self) -> Any:
        return getattr(qnn, f"FusedQat{self.stem}")

    def make(self, **more: Any) -> nn.Module:
        return self.layer(*self.args, **{**self.kwargs, **more})

    def make_norm(self, **more: Any) -> nn.Module:
        """A batch norm with statistics, gains (some negative) and shifts of all sizes."""
        bn = self.norm(self.args[1], **more)
        randomise(bn)
        return bn

    def input(self) -> Tensor:
        return torch.randn(*self.shape)


def randomise(bn: nn.Module) -> None:
    with torch.no_grad():
        bn.running_mean.normal_()
        bn.running_var.uniform_(0.3, 2.0)
        if bn.weight is not None:
            bn.weight.normal_()
            bn.bias.normal_()


N1, N2, N3 = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
CASES = [
    Case("conv1d", nn.Conv1d, N1, (4, 6, 3), (5, 4, 11), {"padding": 1}),
    Case("conv2d", nn.Conv2d, N2, (4, 6, 3), (5, 4, 7, 8), {"stride": 2, "padding": 1}),
    Case("conv2d-groups", nn.Conv2d, N2, (4, 6, 3), (5, 4, 7, 8), {"groups": 2, "dilation": 2}),
    Case("conv2d-no-bias", nn.Conv2d, N2, (4, 6, 1), (5, 4, 7, 8), {"bias": False}),
    Case("conv2d-same", nn.Conv2d, N2, (4, 6, 3), (5, 4, 7, 8), {"padding": "same"}),
    Case(
        "conv2d-circular",
        nn.Conv2d,
        N2,
        (4, 6, 3),
        (5, 4, 7, 8),
        {"padding": 1, "padding_mode": "circular"},
    ),
    Case(
        "conv2d-reflect",
        nn.Conv2d,
        N2,
        (4, 6, 3),
        (5, 4, 7, 8),
        {"padding": 2, "padding_mode": "reflect"},
    ),
    Case(
        "conv2d-replicate",
        nn.Conv2d,
        N2,
        (4, 6, 3),
        (5, 4, 7, 8),
        {"padding": 1, "padding_mode": "replicate"},
    ),
    Case("depthwise", nn.Conv2d, N2, (6, 6, 3), (5, 6, 7, 8), {"groups": 6, "padding": 1}),
    Case("conv3d", nn.Conv3d, N3, (2, 4, 3), (3, 2, 5, 6, 5), {"padding": (1, 0, 1)}),
    Case("deconv1d", nn.ConvTranspose1d, N1, (4, 6, 3), (5, 4, 9), {"stride": 2}),
    Case(
        "deconv2d",
        nn.ConvTranspose2d,
        N2,
        (4, 6, 3),
        (5, 4, 5, 6),
        {"stride": 2, "padding": 1, "output_padding": 1},
    ),
    Case(
        "deconv2d-groups",
        nn.ConvTranspose2d,
        N2,
        (4, 6, 3),
        (5, 4, 5, 6),
        {"stride": 2, "groups": 2, "dilation": 2},
    ),
    Case(
        "deconv2d-groups-no-bias",
        nn.ConvTranspose2d,
        N2,
        (6, 6, 2),
        (5, 6, 5, 6),
        {"groups": 3, "bias": False},
    ),
    Case("deconv3d", nn.ConvTranspose3d, N3, (2, 4, 2), (3, 2, 4, 3, 4), {"stride": 2}),
    Case("linear", nn.Linear, N1, (5, 6), (16, 5)),
    Case("linear-no-bias", nn.Linear, N1, (5, 6), (16, 5), {"bias": False}),
]
"""Layers that can be followed by a batch norm."""

ACTIVATIONS = [None, nn.ReLU, nn.ReLU6]


class Off(nn.Module):
    """A quantizer that is switched off."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class Unfused(nn.Module):
    """The float modules that a fused layer replaces, one after the other."""

    def __init__(self, layer: nn.Module, bn: nn.Module | None, activation: nn.Module | None):
        super().__init__()
        self.layer, self.bn, self.activation = layer, bn, activation

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        y = y if self.bn is None else self.bn(y)
        return y if self.activation is None else self.activation(y)

    def parts(self) -> list[nn.Module]:
        return [m for m in (self.layer, self.bn, self.activation) if m is not None]

    def fused(self, case: Case) -> nn.Module:
        """A fused float layer of its own, with equal parameters."""
        return case.fused.from_float(*copy.deepcopy(self).parts())

    def quantized(self, case: Case, weight: nn.Module, bias: nn.Module | None = None) -> nn.Module:
        """A fused quantized layer of its own, with equal parameters."""
        return case.fused_qat.from_float(self.fused(case), weight, bias)


def unfused(case: Case, activation: Any = None, **norm: Any) -> Unfused:
    return Unfused(case.make(), case.make_norm(**norm), activation and activation())


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> bool:
    """Whether the largest difference is within `tolerance` of the largest value."""
    size = float(expected.detach().abs().max())
    return float((actual - expected).detach().abs().max()) <= tolerance * max(size, 1.0)


class Rounding(nn.Module):
    """A fixed symmetric quantizer."""

    def __init__(self, scale: Tensor, axis: int | None, hi: int) -> None:
        super().__init__()
        self.register_buffer("scale", scale)
        self.register_buffer("zero_point", torch.zeros_like(scale, dtype=torch.int32))
        self.grid = Grid(axis, -hi, hi)

    def forward(self, x: Tensor) -> Tensor:
        return fake_quantize(x, self.scale, self.zero_point, self.grid)


def max_abs_quantizer(x: Tensor, axis: int | None, bits: int = 6) -> nn.Module:
    """A symmetric quantizer whose scale fits `x`."""
    hi = 2 ** (bits - 1) - 1
    x = x.detach().abs()
    most = x.amax() if axis is None else x.transpose(0, axis).flatten(1).amax(1)
    return Rounding(most.clamp_min(1e-6) / hi, axis, hi)
