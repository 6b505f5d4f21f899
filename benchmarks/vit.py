"""A small vision transformer, written so that FX cannot trace it: by the sizes of its input."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Attention and two layers, each around a sum."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norm1(x)).reshape(shape).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    """Patches of 8 x 8, blocks, and a class for the mean of all patches."""

    def __init__(self, width: int = 192, depth: int = 4, classes: int = 100) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.places = nn.Parameter(torch.randn(1, 64, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, 3) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] % 8:
            raise ValueError("the image is not made of patches")
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))
