"""Small architectures in plain torch, shaped like the networks people quantize.

Every model keeps what makes its family hard (residuals, depthwise convolutions, skip
concatenations, transposed convolutions, attention with shape arithmetic, functional operators,
keyword arguments) and is otherwise as small as it can be: a forward pass takes about a
millisecond. `ARCHITECTURES` names them with inputs that fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))  # one ReLU module serves twice
        y = self.bn2(self.conv2(y))
        y += identity
        return self.relu(y)


class ResNet18(nn.Module):
    """The 18-layer layout: four stages of two basic blocks."""

    def __init__(self, width: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = [width, width, 2 * width, 4 * width, 4 * width]
        for stage in range(1, 5):
            stride = 1 if stage == 1 else 2
            blocks = nn.Sequential(
                BasicBlock(channels[stage - 1], channels[stage], stride),
                BasicBlock(channels[stage], channels[stage], 1),
            )
            setattr(self, f"layer{stage}", blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels[4], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        self.shortcut = stride == 1 and inputs == outputs
        layers: list[nn.Module] = []
        if expand != 1:
            layers += [nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()]
        layers += [
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.shortcut else self.conv(x)


class MobileNetV2(nn.Module):
    """Inverted residuals with depthwise convolutions and ReLU6."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        rows = [(8, 1, 1), (12, 2, 4), (12, 1, 4), (16, 2, 4), (16, 1, 4)]
        features: list[nn.Module] = [
            nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        ]
        inputs = 8
        for outputs, stride, expand in rows:
            features.append(InvertedResidual(inputs, outputs, stride, expand))
            inputs = outputs
        features.append(
            nn.Sequential(nn.Conv2d(inputs, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6())
        )
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean([2, 3]))


def _double_conv(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, 1, 1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, 1, 1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Encoder and decoder with skip concatenations and transposed convolutions."""

    def __init__(self, width: int = 8, classes: int = 2) -> None:
        super().__init__()
        self.down1 = _double_conv(3, width)
        self.down2 = _double_conv(width, 2 * width)
        self.bottom = _double_conv(2 * width, 4 * width)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.merge2 = _double_conv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.merge1 = _double_conv(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(self.pool(first))
        x = self.bottom(self.pool(second))
        x = self.merge2(torch.cat([second, self.up2(x)], 1))
        x = self.merge1(torch.cat([first, self.up1(x)], 1))
        return self.head(x)


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = math.sqrt(width // heads)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.value(x)
        scores = torch.matmul(query, key.transpose(-2, -1)) / self.scale
        mixed = torch.matmul(torch.softmax(scores, -1), self.split(value))
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.shrink = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.shrink(F.gelu(self.expand(self.norm2(x)))))


class TransformerEncoder(nn.Module):
    """Token and position embeddings, two pre-norm layers, a classifier on the first token."""

    def __init__(self, width: int = 16, heads: int = 2, vocabulary: int = 50) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(1, 12, width) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions[:, : ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class Conv1dNet(nn.Module):
    """A keyword spotter: strided and dilated one-dimensional convolutions."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(4, 8, 5, 2, 2, bias=False),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.Conv1d(8, 16, 3, padding=2, dilation=2),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Conv1d(16, 16, 3, padding=1, groups=16),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class FunctionalNet(nn.Module):
    """Functional operators, optional arguments, a constant one, and two named outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.gate = nn.Conv2d(8, 8, 1)
        self.mix = nn.Conv2d(16, 8, 1)
        self.weight = nn.Parameter(torch.randn(8, 8, 3, 3) * 0.1)
        self.head = nn.Linear(8, 3)

    def forward(
        self,
        x: Tensor,
        skip: Tensor | None = None,
        mask: Tensor | None = None,
        scale: float = 0.5,
    ) -> dict[str, Tensor]:
        y = F.hardswish(self.stem(x))
        y = y * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(y, 1)))
        low = F.avg_pool2d(y, 2)
        up = F.interpolate(low, scale_factor=2.0, mode="nearest")
        y = self.mix(torch.cat((y, up), dim=1))
        if skip is not None:
            y = torch.add(y, skip)
        y = F.relu(F.conv2d(y, self.weight, padding=1))
        if mask is not None:
            y = y * mask
        y = y.sub(scale)
        return {"features": y, "logits": self.head(torch.flatten(F.max_pool2d(y, y.shape[-1]), 1))}


class Siamese(nn.Module):
    """One trunk called twice, and a linear layer shared between both uses."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.embed = nn.Linear(8, 8)

    def one(self, x: Tensor) -> Tensor:
        return self.embed(self.trunk(x).mean((2, 3)))

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.one(left), self.one(right)
        return a - b, torch.cat([a, b], 1)


class VideoNet(nn.Module):
    """Three dimensions, up and down, grouped transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv3d(2, 8, 3, 2, 1), nn.BatchNorm3d(8), nn.ReLU())
        self.up = nn.ConvTranspose3d(8, 4, 2, 2, groups=2)
        self.head = nn.Conv3d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.up(self.down(x))))


class MobileNetV3(nn.Module):
    """Squeeze and excitation, hard swish and hard sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish())
        self.depthwise = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.excite = nn.Conv2d(4, 8, 1)
        self.act = nn.Hardswish()
        self.gate = nn.Hardsigmoid()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.act(self.depthwise(x))
        y = y * self.gate(self.excite(F.relu(self.squeeze(self.pool(y)))))
        return self.head(self.pool(x + y).flatten(1))


class Detector(nn.Module):
    """A two-level pyramid: upsampling to a size, addition, and a list of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.c1 = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.LeakyReLU(0.1))
        self.c2 = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.PReLU())
        self.lateral = nn.ModuleList([nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1)])
        self.head = nn.Conv2d(8, 6, 3, padding=1)

    def forward(self, x: Tensor) -> list[Tensor]:
        first = self.c1(x)
        top = self.lateral[1](self.c2(first))
        size = first.shape[-2:]
        bottom = self.lateral[0](first) + F.interpolate(top, size=size, mode="nearest")
        return [self.head(bottom), self.head(top)]


@dataclass(frozen=True)
class Architecture:
    """A model maker with inputs that fit, for a given batch size."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Any, ...]]
    kwargs: Callable[[int], dict[str, Any]] = field(default=lambda batch: {})

    def build(self, seed: int = 0) -> nn.Module:
        """The model, its BatchNorm statistics away from their initial values."""
        torch.manual_seed(seed)
        model = self.make()
        for module in model.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, std=0.2)
                nn.init.normal_(module.running_mean, std=0.2)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
        return model


def _image(size: int, channels: int = 3) -> Callable[[int], tuple[Any, ...]]:
    return lambda batch: (torch.randn(batch, channels, size, size),)


ARCHITECTURES: dict[str, Architecture] = {
    "resnet18": Architecture(ResNet18, _image(32)),
    "mobilenet_v2": Architecture(MobileNetV2, _image(32)),
    "unet": Architecture(UNet, _image(16)),
    "transformer": Architecture(TransformerEncoder, lambda n: (torch.randint(0, 50, (n, 12)),)),
    "conv1d": Architecture(Conv1dNet, lambda n: (torch.randn(n, 4, 32),)),
    "functional": Architecture(
        FunctionalNet,
        lambda n: (torch.randn(n, 3, 16, 16), torch.randn(n, 8, 16, 16)),
        lambda n: {"mask": torch.rand(n, 1, 16, 16).round()},
    ),
    "siamese": Architecture(
        Siamese, lambda n: (torch.randn(n, 3, 16, 16), torch.randn(n, 3, 16, 16))
    ),
    "video": Architecture(VideoNet, lambda n: (torch.randn(n, 2, 4, 8, 8),)),
    "mobilenet_v3": Architecture(MobileNetV3, _image(16)),
    "detector": Architecture(Detector, _image(16)),
}
