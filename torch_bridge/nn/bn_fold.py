"""Batch normalisation as a gain and a bias of the layer before it.

f = γ / √(v + ε)                    gain per output channel, from the running variance
BN(conv(x, W) + b) = conv(x, W·f) + (b - μ)·f + β       with the running statistics
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torch_bridge.nn.layout import out_channels

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

SMALLEST_GAIN = 1e-5
"""Channels with a smaller |f| are trained unquantized where f stays in the weights."""


def gain(bn: _BatchNorm) -> Tensor:
    """γ / √(v + ε), always by the same float operations."""
    deviation = torch.sqrt(_as_read(bn, bn.running_var) + bn.eps)
    return torch.reciprocal(deviation) if bn.weight is None else bn.weight / deviation


def folded_bias(bn: _BatchNorm, bias: Tensor | None, f: Tensor) -> Tensor:
    """(b - μ)·f + β."""
    mean = _as_read(bn, bn.running_mean)
    shifted = -mean if bias is None else bias - mean
    folded = shifted * f
    return folded if bn.bias is None else folded + bn.bias


@torch.library.custom_op("torch_bridge::snapshot", mutates_args=())
def _snapshot(x: Tensor) -> Tensor:
    return x.clone()


@_snapshot.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _as_read(bn: _BatchNorm, statistic: Tensor | None) -> Tensor:
    """A running statistic as it is now: the batch norm updates it later in the same step.

    torch.compile may recompute parts of the forward pass in the backward pass, and then read the
    updated statistic (torch 2.13 and before). It keeps the results of operators unknown to it.
    """
    assert statistic is not None  # checked by `why_not_foldable`
    compiled = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
    return _snapshot(statistic) if compiled and bn.training else statistic


def why_not_foldable(layer: nn.Module, bn: _BatchNorm) -> str:
    """The reason why `bn` cannot be folded into `layer`; "" if it can."""
    if bn.running_var is None or bn.running_mean is None:
        return "it keeps no running statistics (track_running_stats=False)"
    channels = out_channels(layer)
    if bn.num_features != channels:
        return f"it normalises {bn.num_features} channels, but the layer computes {channels}"
    return ""


def is_batch_norm(module: nn.Module | None) -> TypeGuard[_BatchNorm]:
    """Whether `module` is a batch normalisation of torch (frozen ones included)."""
    return isinstance(module, BATCH_NORMS)
