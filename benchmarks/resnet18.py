"""ResNet-18 with its full widths and a stem for small images, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu2 = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu1(self.bn1(self.conv1(x)))
        return self.relu2(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Eight blocks in four stages."""

    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks, inputs = [], 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))
