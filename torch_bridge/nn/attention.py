"""Multi-head attention as separate layers and products, which can be quantized.

    q, k, v = W_q x + b_q, W_k y + b_k, W_v z + b_v         split into h heads of d / h features
    a       = softmax(q k^T / sqrt(d / h) + mask)
    out     = W_o (a v) + b_o

torch's own module multiplies with slices of one stacked weight inside one function, in which
quantizers cannot be inserted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torch_bridge.nn.children import places
from torch_bridge.nn.hooks import keep_hooks


class ActivationProduct(nn.Module):
    """A product of two activations, each with a quantizer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.left_fake_quant: nn.Module | None = None
        self.right_fake_quant: nn.Module | None = None

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """The matrix product."""
        if self.left_fake_quant is not None:
            left = self.left_fake_quant(left)
        if self.right_fake_quant is not None:
            right = self.right_fake_quant(right)
        return torch.matmul(left, right)


class Attention(nn.Module):
    """nn.MultiheadAttention in separate layers."""

    in_proj_bias = None
    """Prevents the fast path of torch's encoder layers, which skips modules."""
    stands_for = nn.MultiheadAttention
    """The class that selectors find it by."""

    def __init__(self, source: nn.MultiheadAttention) -> None:
        super().__init__()
        self.embed_dim = source.embed_dim
        self.num_heads = source.num_heads
        self.head_dim = source.head_dim
        self.dropout = source.dropout
        self.batch_first = source.batch_first
        self._qkv_same_embed_dim = source._qkv_same_embed_dim
        weights = (
            (source.q_proj_weight, source.k_proj_weight, source.v_proj_weight)
            if source.in_proj_weight is None
            else source.in_proj_weight.chunk(3)
        )
        biases = (None,) * 3 if source.in_proj_bias is None else source.in_proj_bias.chunk(3)
        self.q_proj, self.k_proj, self.v_proj = map(_linear, weights, biases)
        self.out_proj = _linear(source.out_proj.weight, source.out_proj.bias)
        self.scores = ActivationProduct()
        self.mixed = ActivationProduct()
        self.train(source.training)

    def first_layers(self, argument: int) -> Sequence[nn.Module]:
        """The layers that read an argument of `forward` as it is."""
        return (self.q_proj, self.k_proj, self.v_proj)[argument : argument + 1]

    def parts(self, name: str) -> tuple[Tensor, ...]:
        """The tensors that hold the parameter `name` of nn.MultiheadAttention."""
        if name in ("in_proj_weight", "in_proj_bias"):
            part = name.removeprefix("in_proj_")
            layers = (self.q_proj, self.k_proj, self.v_proj)
            return tuple(getattr(layer, part) for layer in layers)
        layer, _, part = name.rpartition("_")  # q_proj_weight
        return (getattr(self.get_submodule(layer), part),)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The same as nn.MultiheadAttention; `is_causal` is only a hint, the mask decides."""
        batched = query.dim() == 3
        if not batched:
            query, key, value = (t.unsqueeze(0) for t in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        q = self._split(self.q_proj(query))
        k = self._split(self.k_proj(key))
        v = self._split(self.v_proj(value))
        scores = self.scores(q / math.sqrt(self.head_dim), k.transpose(-2, -1))
        if attn_mask is not None:
            heads = (-1, self.num_heads, *attn_mask.shape[-2:])
            mask = attn_mask.view(heads) if attn_mask.dim() == 3 else attn_mask
            scores = scores + _additive(mask, scores)
        if key_padding_mask is not None:
            scores = scores + _additive(key_padding_mask[:, None, None, :], scores)
        weights = F.dropout(torch.softmax(scores, -1), self.dropout, self.training)
        mixed = self.mixed(weights, v).transpose(1, 2).flatten(2)
        out = self.out_proj(mixed)
        if not batched:
            out, weights = out.squeeze(0), weights.squeeze(0)
        elif not self.batch_first:
            out = out.transpose(0, 1)
        if not need_weights:
            return out, None
        return out, weights.mean(-3) if average_attn_weights else weights

    def _split(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, -1, (self.num_heads, self.head_dim)).transpose(1, 2)


def expand_attention(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """`model` with every nn.MultiheadAttention replaced, and a note on those that stay."""
    if type(model) is nn.MultiheadAttention:
        holder = nn.ModuleList([model])
        _, notes = expand_attention(holder)
        return holder[0], notes
    notes = []
    made: dict[int, nn.Module] = {}
    for place in places(model):
        if type(place.child) is not nn.MultiheadAttention:
            continue
        if place.child.bias_k is not None or place.child.add_zero_attn:
            notes.append(f"{place.path}: left float, extra keys (bias_k, add_zero_attn)")
            continue
        attention = made.setdefault(id(place.child), Attention(place.child))
        keep_hooks(place.child, attention)
        place.put(attention)
    return model, notes


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    made = nn.Linear(
        weight.shape[1], weight.shape[0], bias is not None, device=weight.device, dtype=weight.dtype
    )
    with torch.no_grad():
        made.weight.copy_(weight)
        if bias is not None:
            made.bias.copy_(bias)
            made.bias.requires_grad_(bias.requires_grad)
    made.weight.requires_grad_(weight.requires_grad)
    return made


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A mask to add; True in a boolean mask excludes a position."""
    if mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
