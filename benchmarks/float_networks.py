"""Float networks to quantize, with weights and data as uneven as trained ones have.

Without downloads: weights are random with channels of different sizes, batch norms have the
statistics of the data, LayerNorms have a few large channels, and pictures have the spectrum of
natural ones.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.resnet18 import ResNet18

Feed = dict[str, np.ndarray]


class InvertedResidual(nn.Module):
    """Widen, filter every channel by itself, narrow."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        wide = inputs * factor
        layers: list[nn.Module] = []
        if factor != 1:
            layers += [nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        layers += [
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.body = nn.Sequential(*layers)
        self.skip = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.skip else y


class MobileNetV2(nn.Module):
    """The published widths and depths."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 32, 3, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU6(),
        ]
        width = 32
        stages = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)
        for factor, outputs, count, stride in (
            *stages,
            *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
        ):
            for index in range(count):
                step = stride if index == 0 else 1
                layers.append(InvertedResidual(width, outputs, step, factor))
                width = outputs
        layers += [nn.Conv2d(width, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.features(x).mean((2, 3)))
        return y


class EncoderLayer(nn.Module):
    """Attention with an additive mask, and a feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        size = width // self.heads
        q, k, v = (
            part(x).view(batch, tokens, self.heads, size).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        share = (q @ k.transpose(2, 3) / math.sqrt(size) + mask).softmax(-1)
        mixed = (share @ v).transpose(1, 2).reshape(batch, tokens, width)
        x = self.norm1(x + self.o(mixed))
        y: Tensor = self.norm2(x + self.narrow(nn.functional.gelu(self.wide(x))))
        return y


class Encoder(nn.Module):
    """BERT's structure with 6 layers."""

    def __init__(self, width: int = 384, heads: int = 6, depth: int = 6, words: int = 2000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(1, 128, width) * 0.02)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(depth))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x: Tensor = self.norm(self.words(ids) + self.places[:, : ids.shape[1]])
        hidden = (1 - mask[:, None, None, :].float()) * -1e4
        for layer in self.layers:
            x = layer(x, hidden)
        return x


def pictures(count: int, seed: int, size: int = 224) -> list[Feed]:
    """Sums of smooth noise: large structures are strong, small ones weak."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        picture = 0.1 * rng.standard_normal((3, size, size))
        for cells in (4, 8, 16, 32, 64):
            coarse = torch.from_numpy(rng.standard_normal((1, 3, cells, cells)))
            fine = nn.functional.interpolate(coarse, size=(size, size), mode="bilinear")
            picture += fine[0].numpy() * (8 / cells) ** 0.7
        picture = (picture - picture.mean()) / picture.std()
        made.append({"x": picture[None].astype(np.float32)})
    return made


def sentences(count: int, seed: int, tokens: int = 128) -> list[Feed]:
    """Random words, the rest of each sentence masked."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        length = rng.integers(tokens // 3, tokens + 1)
        mask = (np.arange(tokens)[None] < length).astype(np.int64)
        made.append({"ids": rng.integers(0, 2000, (1, tokens)), "mask": mask})
    return made


def _settled(model: nn.Module, spread: float = 0.25) -> nn.Module:
    """Uneven channels, and batch norms that know the data."""
    torch.manual_seed(0)
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out")
            part.weight.data *= torch.exp(spread * torch.randn(part.weight.shape[0], 1, 1, 1))
        elif isinstance(part, nn.BatchNorm2d):
            part.momentum = None
            nn.init.normal_(part.weight, 1, spread)
            nn.init.normal_(part.bias, 0, spread)
        elif isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, 0, 1 / math.sqrt(part.in_features))
            nn.init.zeros_(part.bias)
    model.train()
    with torch.no_grad():
        for seed in (100, 101):
            batch = np.concatenate([feed["x"] for feed in pictures(8, seed)])
            model(torch.from_numpy(batch))
    return model.eval()


def _settled_encoder(outliers: float = 5.0) -> nn.Module:
    model = Encoder()
    random = torch.Generator().manual_seed(0)
    for part in model.modules():
        if isinstance(part, nn.Linear):
            deviation = 1.2 / math.sqrt(part.in_features)
            nn.init.normal_(part.weight, 0, deviation, generator=random)
            nn.init.normal_(part.bias, 0, 0.1, generator=random)
        elif isinstance(part, nn.LayerNorm):
            nn.init.normal_(part.weight, 1, 0.2, generator=random)
            nn.init.normal_(part.bias, 0, 0.2, generator=random)
            large = torch.randperm(part.weight.numel(), generator=random)[:4]
            part.weight.data[large] *= outliers
    return model.eval()


NETWORKS = ("resnet18", "mobilenetv2", "encoder")


def data(name: str, count: int, seed: int) -> list[Feed]:
    """Samples for a network."""
    return sentences(count, seed) if name == "encoder" else pictures(count, seed)


def write(name: str, path: Path) -> None:
    """Export a network as a user would."""
    if name == "encoder":
        model = _settled_encoder()
    else:
        model = _settled(ResNet18(1000) if name == "resnet18" else MobileNetV2())
    feed = data(name, 1, 0)[0]
    names = {key: {0: "N"} for key in (*feed, "y")}
    torch.onnx.export(
        model,
        tuple(map(torch.from_numpy, feed.values())),
        path,
        dynamo=False,
        input_names=list(feed),
        output_names=["y"],
        opset_version=17,
        dynamic_axes=names,
    )
