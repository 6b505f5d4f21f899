"""A small MobileNet trained on CIFAR-10: about ten minutes on one core, once.

SGD with one cycle of the learning rate; pictures are shifted by up to 4 pixels and mirrored. The
seed is fixed, so one machine trains the same network again; another rounds differently. The file
is named after what the training depends on: a changed one is done again.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.cifar10.pictures import cache, inputs, pictures

EPOCHS = 12
BATCH = 128
RATE = 0.2
DECAY = 5e-4
SHIFT = 4
FIRST = 16
"""Channels of the first layer, at 32 x 32 pixels."""
BLOCKS = ((48, 2), (48, 1), (96, 2), (96, 1), (256, 2), (256, 1))
"""Channels and stride of each block."""


class Separable(nn.Module):
    """Filter every channel by itself, then mix them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU6(inplace=True),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU6(inplace=True),
        )
        self.skip = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.skip else y


def small_mobilenet(classes: int = 10) -> nn.Module:
    """Separable convolutions in six blocks, down to 4 x 4 pixels."""
    layers: list[nn.Module] = [nn.Conv2d(3, FIRST, 3, 1, 1, bias=False)]
    layers += [nn.BatchNorm2d(FIRST), nn.ReLU6(inplace=True)]
    width = FIRST
    for outputs, stride in BLOCKS:
        layers.append(Separable(width, outputs, stride))
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def trained() -> Path:
    """The file of the trained network; trains it if there is none."""
    settings = repr((EPOCHS, BATCH, RATE, DECAY, SHIFT, FIRST, BLOCKS))
    path = cache() / f"cifar10-{hashlib.sha256(settings.encode()).hexdigest()[:12]}.onnx"
    if not path.is_file():
        model = _train(*pictures("train"))
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        _export(model, temporary)
        temporary.replace(path)
    return path


def _train(found: np.ndarray, classes: np.ndarray) -> nn.Module:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    model = small_mobilenet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), RATE, momentum=0.9, weight_decay=DECAY, nesterov=True
    )
    steps = EPOCHS * (len(found) // BATCH)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.2)
    padded = np.pad(found, ((0, 0), (0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)))
    for epoch in range(EPOCHS):
        began, total = time.process_time(), 0.0
        order = rng.permutation(len(found))[: steps // EPOCHS * BATCH]
        for chosen in order.reshape(-1, BATCH):
            x = torch.from_numpy(inputs(_moved(padded, chosen, rng)))
            optimizer.zero_grad()
            y: Tensor = model(x.contiguous(memory_format=torch.channels_last))
            loss = nn.functional.cross_entropy(y, torch.from_numpy(classes[chosen]))
            loss.backward()
            optimizer.step()
            rate.step()
            total += loss.item()
        spent = time.process_time() - began
        print(
            f"CIFAR-10, epoch {epoch + 1} of {EPOCHS}: loss {total * EPOCHS / steps:.3f}, "
            f"{spent:.0f} CPU s",
            file=sys.stderr,
            flush=True,
        )
    return model.eval()


def _moved(padded: np.ndarray, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pictures cut out of padded ones at random places, every second one mirrored."""
    top, left = rng.integers(0, 2 * SHIFT + 1, (2, len(chosen), 1))
    at, across = np.arange(32), np.arange(32)[None].repeat(len(chosen), axis=0)
    mirrored = rng.integers(0, 2, len(chosen)).astype(bool)
    across[mirrored] = across[mirrored, ::-1]
    rows, columns = (top + at)[:, None, :, None], (left + across)[:, None, None, :]
    return padded[chosen[:, None, None, None], np.arange(3)[None, :, None, None], rows, columns]


def _export(model: nn.Module, path: Path) -> None:
    torch.onnx.export(
        model.to(memory_format=torch.contiguous_format),
        (torch.zeros(1, 3, 32, 32),),
        path,
        dynamo=False,
        input_names=["x"],
        output_names=["y"],
        opset_version=17,
        dynamic_axes={"x": {0: "N"}, "y": {0: "N"}},
    )


if __name__ == "__main__":
    print(trained())
