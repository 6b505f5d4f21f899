"""Models whose code tracers find hard, one difficulty each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.zoo.case import Case, case


class Recurrent(nn.Module):
    """A recurrent layer of torch, and a head."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells = kind(8, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0])


class Branches(nn.Module):
    """Decisions on sizes, a loop over one, and an assertion."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.heads = nn.ModuleList(nn.Linear(8, 4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        assert channels == 3
        y = F.relu(self.norm(self.conv(x)))
        if height % 2 or width % 2:
            y = F.pad(y, (0, width % 2, 0, height % 2))
        y = y.view(batch, 8, -1).mean(-1)
        for head in self.heads:
            if y.shape[-1] == head.in_features:
                y = y + F.pad(head(y), (0, 4))
        return y


@dataclasses.dataclass
class Answer:
    """A result with optional parts."""

    hidden: Tensor
    logits: Tensor | None = None
    name: str = "answer"


class DictIn(nn.Module):
    """A dict of tensors in, a dataclass out."""

    def __init__(self) -> None:
        super().__init__()
        self.text = nn.Linear(8, 8)
        self.image = nn.Linear(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, batch: dict[str, Tensor], scale: float = 2.0, *, full: bool = True) -> Answer:
        hidden = torch.zeros(1)
        for name, value in sorted(batch.items()):
            hidden = hidden + getattr(self, name)(value) * scale
        return Answer(hidden, self.head(hidden) if full else None)


class Shared(nn.Module):
    """One layer called as often as the input is long."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.again = self.layer

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(len(x.shape)):
            x = torch.relu(self.layer(x)) + self.again(x)
        return x


class Tied(nn.Module):
    """The head multiplies with the weight of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.body = nn.Linear(16, 16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        rows, columns = tokens.shape
        x = self.embed(tokens).view(rows * columns, -1)
        return self.head(torch.relu(self.body(x))).view(rows, columns, -1)


class FunctionalAttention(nn.Module):
    """F.scaled_dot_product_attention in several heads, with a mask that may be absent."""

    def __init__(self, heads: int = 2, *, causal: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).reshape(shape).permute(2, 0, 3, 1, 4)
        if mask is not None and mask.dim() == 2:
            mask = mask[:, None, None, :]
        dropout = 0.1 if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout, self.causal)
        return self.out(y.transpose(1, 2).flatten(2)) + x


class Einsum(nn.Module):
    """Products written as einsum, and one with a plain parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Parameter(torch.randn(16, 16) / 4)
        self.key = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 2:
            x = x.unsqueeze(0)
        scores = torch.einsum("bid,bjd->bij", x @ self.project, self.key(x))
        return torch.einsum("bij,bjd->bid", scores.softmax(-1), x)


class Constants(nn.Module):
    """Tensors written in the code, one of them changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 100:
            raise ValueError("too many rows")
        mean = torch.tensor([0.1, 0.2, 0.3, 0.4])
        step = torch.zeros(4)
        step += 0.5
        y = self.layer((x - mean) * step)
        y += 1
        y[:, 0].mul_(2)
        return y


class SameConv(nn.Conv2d):
    """Padding as in TensorFlow, by the size of the input."""

    def forward(self, input: Tensor) -> Tensor:
        (stride, _), (kernel, _) = self.stride, self.kernel_size
        missing = [max((-n % stride or stride) and kernel - stride, 0) for n in input.shape[-2:]]
        low = [m // 2 for m in missing]
        padded = F.pad(input, (low[1], missing[1] - low[1], low[0], missing[0] - low[0]))
        return F.conv2d(padded, self.weight, self.bias, self.stride, 0, 1, self.groups)


class NamedLinear(nn.Linear):
    """Another name for a Linear."""


class Derived(nn.Module):
    """Layers of derived classes, one of which changes the code, and a parametrized one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SameConv(3, 8, 3, 2, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 1))
        self.head = NamedLinear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.conv(x)))
        return self.head(torch.relu(self.normed(y)).mean((2, 3)))


class Config:
    """Settings that code asks for at every step."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Configured(nn.Module):
    """Code driven by a config, as in libraries of language models."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(30, config.width)
        self.layers = nn.ModuleList(FunctionalAttention() for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, 30)

    def forward(
        self,
        tokens: Tensor | None = None,
        mask: Tensor | None = None,
        embedded: Tensor | None = None,
        return_all: bool | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        if (tokens is None) == (embedded is None):
            raise ValueError("either tokens or embedded")
        x = self.embed(tokens) if embedded is None else embedded
        keep = return_all if return_all is not None else self.config.return_all
        if mask is not None:
            mask = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e4
        states = []
        for layer in self.layers[: self.config.depth]:
            states.append(x)
            x = layer(x, mask)
        return {
            "logits": self.head(self.norm(x)),
            "states": tuple(states) if keep else None,
        }


MODELS: dict[str, Callable[[], Case]] = {
    "LSTM": lambda: case(Recurrent(nn.LSTM), torch.randn(2, 5, 8)),
    "GRU": lambda: case(Recurrent(nn.GRU), torch.randn(2, 5, 8)),
    "control flow": lambda: case(Branches(), torch.randn(2, 3, 9, 8)),
    "dict inputs": lambda: case(
        DictIn(), {"text": torch.randn(2, 8), "image": torch.randn(2, 4)}, full=True
    ),
    "shared modules": lambda: case(Shared(), torch.randn(2, 8)),
    "weight tying": lambda: case(Tied(), torch.randint(0, 20, (2, 6))),
    "SDPA": lambda: case(FunctionalAttention(), torch.randn(2, 6, 16)),
    "causal SDPA": lambda: case(FunctionalAttention(causal=True), torch.randn(2, 6, 16)),
    "einsum": lambda: case(Einsum(), torch.randn(2, 6, 16)),
    "constants": lambda: case(Constants(), torch.randn(3, 4)),
    "derived layers": lambda: case(Derived(), torch.randn(2, 3, 16, 16)),
    "config": lambda: case(
        Configured(Config(width=16, depth=2, return_all=True)),
        tokens=torch.randint(0, 30, (2, 6)),
        mask=torch.ones(2, 6, dtype=torch.long),
    ),
}
"""A function that makes the case, by name."""
