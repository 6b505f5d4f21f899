"""Eight deep networks with random weights, thin and for small images, quantized for a backend.

They are chaotic, as random networks with batch norms are: rounding that moves one value by a step
near the input moves most values of the output. Their layouts are those of well-known families.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onnxq.backend import Backend
from onnxq.graph import Model, from_proto
from onnxq.pipeline import Pipeline
from passes.phases import CLEAN, FOLD_SYMMETRIC
from tests.models.vision_networks import conv_norm, placed, with_statistics

SIZE = 32
CLASSES = 40


class _Sum(nn.Module):
    """relu(body(x) + skip(x))."""

    def __init__(self, body: nn.Module, skip: nn.Module, act: bool = True) -> None:
        super().__init__()
        self.body, self.skip, self.act = body, skip, act

    def forward(self, x: Tensor) -> Tensor:
        total = self.body(x) + self.skip(x)
        return F.relu(total) if self.act else total


class _Join(nn.Module):
    """The results of several branches, joined along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class _Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class _Ghost(nn.Module):
    """Half of the channels by a convolution, the others from them by a cheap one."""

    def __init__(self, inputs: int, outputs: int, act: bool = True) -> None:
        super().__init__()
        kind = nn.ReLU if act else None
        half = outputs // 2
        self.first = conv_norm(inputs, half, 1, act=kind)
        self.cheap = conv_norm(half, half, 3, groups=half, act=kind)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        return torch.cat([first, self.cheap(first)], 1)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        tokens, width = x.shape[1:]
        qkv = self.qkv(self.norm(x)).reshape(-1, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        share = torch.softmax(q @ k.transpose(-2, -1) * 2.0, -1)
        return x + self.out((share @ v).transpose(1, 2).reshape(-1, tokens, width))


class _Tokens(nn.Module):
    """Patches of the image as tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.patches(x).flatten(2).transpose(1, 2)


class _Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def _headed(*layers: nn.Module, channels: int) -> nn.Module:
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)
    )


def _resnet(depth: int = 16, groups: int = 1, gate: bool = False) -> nn.Module:
    layers: list[nn.Module] = [conv_norm(3, 16, 3, 2)]
    inputs = 16
    for at in range(depth):
        outputs, stride = (32, 2) if at == depth // 2 else (inputs, 1)
        body = nn.Sequential(
            conv_norm(inputs, 16, 1),
            conv_norm(16, 16, 3, stride, groups),
            *([_Gate(16)] if gate else []),
            conv_norm(16, outputs, 1, act=None),
        )
        plain = stride == 1 and inputs == outputs
        skip = nn.Identity() if plain else conv_norm(inputs, outputs, 1, stride, act=None)
        layers.append(_Sum(body, skip))
        inputs = outputs
    return _headed(*layers, channels=inputs)


def _inverted(act: Callable[[], nn.Module], gate: bool) -> nn.Module:
    layers: list[nn.Module] = [conv_norm(3, 12, 3, 2, act=act)]
    inputs = 12
    for at in range(14):
        outputs, stride = (20, 2) if at == 6 else (inputs, 1)
        hidden = 2 * inputs
        body = nn.Sequential(
            conv_norm(inputs, hidden, 1, act=act),
            conv_norm(hidden, hidden, 3, stride, hidden, act),
            *([_Gate(hidden)] if gate else []),
            conv_norm(hidden, outputs, 1, act=None),
        )
        same = stride == 1 and inputs == outputs and at % 2
        layers.append(_Sum(body, nn.Identity(), act=False) if same else body)
        inputs = outputs
    return _headed(*layers, channels=inputs)


def _inception() -> nn.Module:
    layers: list[nn.Module] = [conv_norm(3, 24, 3, 2)]
    for at in range(10):
        pool = nn.AvgPool2d(3, 1, 1) if at % 2 else nn.MaxPool2d(3, 1, 1)
        layers.append(
            _Join(
                conv_norm(24, 8, 1),
                nn.Sequential(conv_norm(24, 8, 1), conv_norm(8, 8)),
                nn.Sequential(pool, conv_norm(24, 8, 1)),
            )
        )
        if at == 4:
            layers.append(nn.MaxPool2d(2))
    return _headed(*layers, channels=24)


def _densenet() -> nn.Module:
    layers: list[nn.Module] = [conv_norm(3, 16, 3, 2)]
    for _ in range(3):
        for at in range(5):
            inputs = 16 + 8 * at
            grown = nn.Sequential(conv_norm(inputs, 16, 1), conv_norm(16, 8))
            layers.append(_Join(nn.Identity(), grown))
        layers += [conv_norm(56, 16, 1), nn.AvgPool2d(2)]
    return _headed(*layers, channels=16)


def _ghostnet() -> nn.Module:
    layers: list[nn.Module] = [conv_norm(3, 16, 3, 2)]
    for _ in range(12):
        body = nn.Sequential(_Ghost(16, 32), _Ghost(32, 16, act=False))
        layers.append(_Sum(body, nn.Identity(), act=False))
    return _headed(*layers, channels=16)


def _transformer() -> nn.Module:
    width = 32
    layers: list[nn.Module] = [_Tokens(width)]
    for _ in range(6):
        hidden = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        layers += [_Attention(width, 4), _Sum(hidden, nn.Identity(), act=False)]
    module = nn.Sequential(*layers, nn.LayerNorm(width), _Mean(), nn.Linear(width, CLASSES))
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 2.0 / layer.in_features**0.5)
    return module


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet 50": _resnet,
    "mobilenet v2": lambda: _inverted(nn.ReLU6, gate=False),
    "regnet": lambda: _resnet(groups=4, gate=True),
    "inception": _inception,
    "densenet": _densenet,
    "ghostnet": _ghostnet,
    "transformer": _transformer,
    "efficientnet": lambda: _inverted(nn.SiLU, gate=True),
}
"""The networks by name."""


def samples(count: int, seed: int) -> list[dict[str, np.ndarray]]:
    """Random images."""
    rng = np.random.default_rng(seed)
    shape = (1, 3, SIZE, SIZE)
    return [{"input.1": rng.normal(size=shape).astype(np.float32)} for _ in range(count)]


@functools.cache
def quantized(network: str, backend: Backend) -> Model:
    """A network in canonical form with the quantizers of `backend`; not to be changed."""
    torch.manual_seed(0)
    read = from_proto(with_statistics(NETWORKS[network](), SIZE))
    model = Pipeline(*CLEAN, *FOLD_SYMMETRIC).run(read).model
    (given,) = model.graph.inputs
    given.name = "input.1"
    return placed(model, backend, samples(4, seed=0))
