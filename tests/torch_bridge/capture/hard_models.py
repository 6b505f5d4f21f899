"""Models that tracers find hard, each with the inputs it is called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.torch_bridge.models import ResNet18, TransformerEncoder


class Pyramid(nn.Module):
    """Interpolation to a size that is read from another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Conv2d(3, 4, 3, 1, 1)
        self.coarse = nn.Conv2d(4, 4, 3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x)
        coarse = self.coarse(fine)
        return fine + F.interpolate(coarse, size=fine.shape[-2:], mode="nearest")


class DropoutAndNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(F.relu(self.norm(self.conv(x))).mean((2, 3))))


class FunctionalDropout(nn.Module):
    """The mode is an argument of a function."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(self.body(x), 0.5, self.training))


class Shared(nn.Module):
    """One layer called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.relu(self.layer(x))
        return x


class Counter(nn.Module):
    """A buffer that every call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.layer(x)


class Suppression(nn.Module):
    """Boolean indexing: the size of the result depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y[y > 0]


class OddWidth(nn.Module):
    """A branch on a size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if y.shape[-1] % 2:
            y = F.pad(y, (0, 1))
        return F.avg_pool2d(y, 2)


class Checked(nn.Module):
    """An assertion on a size, and a Python number made from one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] == 3
        pad = int(x.shape[-1] % 4)
        return self.conv(F.pad(x, (0, pad)))


class Steps(nn.Module):
    """A loop over a size."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x[:, 0])
        for i in range(x.shape[1]):
            state = torch.tanh(self.cell(state + x[:, i]))
        return state


class LanguageBlock(nn.Module):
    """Written as in libraries of language models: optional mask, unpacked shapes, a dict."""

    def __init__(self, width: int = 32, head: int = 16) -> None:
        super().__init__()
        self.head = head
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(
        self, hidden: Tensor, mask: Tensor | None = None, return_dict: bool = True
    ) -> dict[str, Tensor] | tuple[Tensor]:
        shape = (*hidden.shape[:-1], -1, self.head)
        x = self.norm(hidden)
        q, k, v = (p(x).view(shape).transpose(1, 2) for p in (self.query, self.key, self.value))
        if mask is not None and mask.dim() == 2:
            mask = mask[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y = self.out(y.transpose(1, 2).reshape(*hidden.shape[:-1], -1))
        return {"hidden": hidden + y} if return_dict else (hidden + y,)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        _, (hidden, _) = self.cells(x)
        return self.head(hidden[-1])


class Detect(nn.Module):
    """A detection head: raw maps in training, decoded boxes on a cached grid in evaluation."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 6, 1)
        self.grid = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if self.training:
            return y
        if self.grid.shape[-2:] != y.shape[-2:]:
            rows, columns = torch.arange(y.shape[-2]), torch.arange(y.shape[-1])
            self.grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy")).float()
        boxes = torch.sigmoid(y[:, :2]) + self.grid
        return torch.cat([boxes, y[:, 2:]], 1).flatten(2)


class Yolo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.SiLU())
        self.head = Detect()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stem(x))


class DataDependent(nn.Module):
    """A branch on a value."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if y.mean() > 0:
            y = y * 2
        return self.second(y)


def _image(size: int = 16) -> tuple[Tensor, ...]:
    return (torch.randn(2, 3, size, size),)


def _features(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(*shape),)


ROOTS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "resnet": (ResNet18, lambda: _image(32)),
    "transformer": (TransformerEncoder, lambda: (torch.randint(0, 50, (2, 12)),)),
    "pyramid": (Pyramid, _image),
    "dropout and norm": (DropoutAndNorm, _image),
    "functional dropout": (FunctionalDropout, _features(4, 8)),
    "shared module": (Shared, _features(4, 8)),
    "buffer mutation": (Counter, _features(4, 8)),
    "boolean indexing": (Suppression, _features(4, 8)),
    "branch on a size": (OddWidth, lambda: _image(15)),
    "assertion on a size": (Checked, lambda: _image(15)),
    "loop over a size": (Steps, _features(2, 5, 8)),
    "language block": (LanguageBlock, lambda: (torch.randn(2, 5, 32), torch.zeros(2, 5))),
    "encoder layer": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
        _features(2, 5, 16),
    ),
    "multi-head attention": (
        lambda: nn.MultiheadAttention(16, 2, batch_first=True),
        lambda: (torch.randn(2, 5, 16),) * 3,
    ),
    "recurrent": (lambda: nn.LSTM(8, 8, batch_first=True), _features(2, 5, 8)),
    "detection head": (Yolo, _image),
    "branch on a value": (DataDependent, _features(4, 8)),
}
"""Root models by name."""
