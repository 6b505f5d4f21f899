"""Image networks in their published layouts, in plain torch: blocks, widths and odd operators.

Weights are random. Statistics of the batch norms come from a few random images, and the branches
of residuals are small, so that activations have the sizes that training keeps them at: rounding
moves the outputs by steps, as in a trained network, and not by half their range. Images are small;
every layer still has more than one position.
"""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onnxq.backend import Backend
from onnxq.calibration.placing import Placing
from onnxq.calibration.ranges import KnownRange
from onnxq.graph import Model, from_proto
from onnxq.pipeline import Pipeline
from onnxq.running import sessions
from passes.phases import CLEAN, FOLD_SYMMETRIC

SIZE = 64
"""Height and width of the images."""
CLASSES = 100


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: Callable[[], nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """A convolution with its batch norm and activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([] if act is None else [act()]))


def _quiet(branch: nn.Sequential) -> nn.Sequential:
    """The branch of a residual, whose last batch norm makes it small."""
    last = [m for m in branch.modules() if isinstance(m, nn.BatchNorm2d)][-1]
    nn.init.constant_(last.weight, 0.3)
    return branch


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.body = _quiet(
            nn.Sequential(
                conv_norm(inputs, outputs, 3, stride),
                conv_norm(outputs, outputs, groups=groups, act=None),
            )
        )
        self.skip = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else conv_norm(inputs, outputs, 1, stride, act=None)
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


class ResNet18(nn.Module):
    """Four stages of two residual blocks; `groups` in the second convolution of each."""

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
        inputs = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [
                _Residual(inputs, outputs, stride, groups),
                _Residual(outputs, outputs, 1, groups),
            ]
            inputs = outputs
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(512, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class _Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(8, channels // 4)
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class _Inverted(nn.Module):
    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        stride: int,
        kernel: int = 3,
        gate: bool = False,
        act: Callable[[], nn.Module] = nn.ReLU6,
    ) -> None:
        super().__init__()
        self.shortcut = stride == 1 and inputs == outputs
        layers: list[nn.Module] = (
            [] if hidden == inputs else [conv_norm(inputs, hidden, 1, act=act)]
        )
        layers.append(conv_norm(hidden, hidden, kernel, stride, hidden, act))
        layers += [_Gate(hidden)] if gate else []
        body = nn.Sequential(*layers, conv_norm(hidden, outputs, 1, act=None))
        self.body = _quiet(body) if self.shortcut else body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.shortcut else self.body(x)


class MobileNetV2(nn.Module):
    """Inverted residuals with ReLU6; the last mean is over two axes."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 32, 3, 2, act=nn.ReLU6)]
        inputs = 32
        table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2))
        for expand, outputs, count, stride in (
            *table,
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ):
            for i in range(count):
                step = 1 if i else stride
                layers.append(_Inverted(inputs, inputs * expand, outputs, step))
                inputs = outputs
        self.features = nn.Sequential(*layers, conv_norm(inputs, 1280, 1, act=nn.ReLU6))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean([2, 3]))


class MobileNetV3(nn.Module):
    """The small one: hard swish, and gates by hard sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        swish = nn.Hardswish
        rows: tuple[tuple[int, int, int, int, bool, Callable[[], nn.Module]], ...] = (
            *((16, 16, 3, 2, True, nn.ReLU), (72, 24, 3, 2, False, nn.ReLU)),
            *((88, 24, 3, 1, False, nn.ReLU), (96, 40, 5, 2, True, swish)),
            *((240, 40, 5, 1, True, swish), (240, 40, 5, 1, True, swish)),
            *((120, 48, 5, 1, True, swish), (144, 48, 5, 1, True, swish)),
            *((288, 96, 5, 2, True, swish), (576, 96, 5, 1, True, swish)),
            (576, 96, 5, 1, True, swish),
        )
        layers: list[nn.Module] = [conv_norm(3, 16, 3, 2, act=swish)]
        inputs = 16
        for hidden, outputs, kernel, stride, gate, act in rows:
            layers.append(_Inverted(inputs, hidden, outputs, stride, kernel, gate, act))
            inputs = outputs
        self.features = nn.Sequential(*layers, conv_norm(96, 576, 1, act=swish))
        self.head = nn.Sequential(nn.Linear(576, 1024), swish(), nn.Linear(1024, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class _Fire(nn.Module):
    def __init__(self, inputs: int, squeeze: int, each: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.one, self.three = nn.Conv2d(squeeze, each, 1), nn.Conv2d(squeeze, each, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


class SqueezeNet(nn.Module):
    """Version 1.1: pools that round up, concatenations, and a convolution at the end."""

    def __init__(self) -> None:
        super().__init__()
        pool = functools.partial(nn.MaxPool2d, 3, 2, ceil_mode=True)
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool(), _Fire(64, 16, 64), _Fire(128, 16, 64)),
            *(pool(), _Fire(128, 32, 128), _Fire(256, 32, 128), pool(), _Fire(256, 48, 192)),
            *(_Fire(384, 48, 192), _Fire(384, 64, 256), _Fire(512, 64, 256)),
        )
        self.head = nn.Sequential(
            *(nn.Dropout(), nn.Conv2d(512, CLASSES, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x)).flatten(1)


def _shuffled(x: Tensor, groups: int) -> Tensor:
    """Channels taken from each group in turn."""
    _, channels, height, width = x.shape
    x = x.view(-1, groups, channels // groups, height, width).transpose(1, 2)
    return x.reshape(-1, channels, height, width)


class _ShuffleUnit(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, half = stride, outputs // 2
        first = inputs if stride > 1 else half
        self.right = nn.Sequential(
            conv_norm(first, half, 1),
            conv_norm(half, half, 3, stride, half, act=None),
            conv_norm(half, half, 1),
        )
        if stride > 1:
            self.left = nn.Sequential(
                conv_norm(inputs, inputs, 3, stride, inputs, act=None), conv_norm(inputs, half, 1)
            )

    def forward(self, x: Tensor) -> Tensor:
        if self.stride > 1:
            return _shuffled(torch.cat([self.left(x), self.right(x)], 1), 2)
        kept, changed = x.chunk(2, 1)
        return _shuffled(torch.cat([kept, self.right(changed)], 1), 2)


class ShuffleNetV2(nn.Module):
    """At width 1: channels split in halves, and shuffled through five axes."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
        inputs = 24
        for outputs, count in ((116, 4), (232, 8), (464, 4)):
            for i in range(count):
                layers.append(_ShuffleUnit(inputs, outputs, 1 if i else 2))
                inputs = outputs
        self.features = nn.Sequential(*layers, conv_norm(464, 1024, 1))
        self.head = nn.Linear(1024, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean([2, 3]))


class Pyramid(nn.Module):
    """A detector: swish, stacked pools, features resized and joined, an output for each level."""

    def __init__(self) -> None:
        super().__init__()
        conv = functools.partial(conv_norm, act=nn.SiLU)
        self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2))
        self.deep = nn.Sequential(conv(32, 64, 3, 2), conv(64, 32, 1))
        self.mixed = conv(128, 64, 1)
        self.up = nn.ConvTranspose2d(64, 32, 2, 2)
        self.joined, self.fine = conv(96, 32, 1), nn.PReLU(32)
        self.heads = nn.ModuleList([nn.Conv2d(32, 18, 1), nn.Conv2d(64, 18, 1)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        near = self.stem(x)
        far = self.deep(near)
        pools = [far]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        far = self.mixed(torch.cat(pools, 1))
        smooth = F.interpolate(far[:, :32], scale_factor=2.0, mode="bilinear", align_corners=False)
        near = self.fine(self.joined(torch.cat([near, self.up(far), smooth], 1)))
        return self.heads[0](near), torch.sigmoid(self.heads[1](far))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": ResNet18,
    "resnet18 grouped": lambda: ResNet18(groups=4),
    "mobilenet v2": MobileNetV2,
    "mobilenet v3": MobileNetV3,
    "squeezenet": SqueezeNet,
    "shufflenet v2": ShuffleNetV2,
    "pyramid": Pyramid,
}
"""The networks by name."""


@functools.cache
def exported(network: str, dynamo: bool = False) -> onnx.ModelProto:
    """The network as torch exports it."""
    torch.manual_seed(0)
    module = NETWORKS[network]()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.bias, 1.0, 0.2)
    return with_statistics(module, SIZE, dynamo)


def with_statistics(module: nn.Module, size: int, dynamo: bool = False) -> onnx.ModelProto:
    """A module as torch exports it, with the statistics of random images in its batch norms."""
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.momentum = None  # the mean of all batches
        for _ in range(2):
            module(torch.randn(4, 3, size, size))
    image = torch.randn(1, 3, size, size)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters warn of themselves
        if dynamo:
            program = torch.onnx.export(module.eval(), (image,), dynamo=True, verbose=False)
            assert program is not None
            return program.model_proto
        torch.onnx.export(module.eval(), (image,), file, dynamo=False, opset_version=17)
    return onnx.load_from_string(file.getvalue())


def images(count: int, seed: int) -> list[np.ndarray]:
    """Random images."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(1, 3, SIZE, SIZE)).astype(np.float32) for _ in range(count)]


def quantized(network: str, backend: Backend, dynamo: bool = False) -> Model:
    """The network in canonical form with the quantizers of `backend`, ranges from few images."""
    read = from_proto(exported(network, dynamo))
    model = Pipeline(*CLEAN, *FOLD_SYMMETRIC).run(read).model
    (given,) = model.graph.inputs
    return placed(model, backend, [{given.name: image} for image in images(4, seed=0)])


def placed(model: Model, backend: Backend, feeds: list[dict[str, np.ndarray]]) -> Model:
    """A float model with the quantizers of `backend`, ranges from what flows by."""
    placing = Placing(model, backend)
    names = [t.name for place in placing.places for t in place.tensors]
    inputs = {t.name for t in model.graph.inputs}
    session = sessions.reference(model, taps=[n for n in names if n not in inputs])
    low, high = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for feed in feeds:
        values = {**feed, **session.run(feed)}
        for name in names:
            low[name] = min(low[name], float(values[name].min()))
            high[name] = max(high[name], float(values[name].max()))
    return placing.place({n: KnownRange.of(low[n], high[n], "samples") for n in names}).model
