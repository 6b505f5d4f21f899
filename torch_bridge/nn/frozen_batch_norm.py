"""Batch normalisation whose statistics never change.

    y = γ * (x - μ) / √(v + ε) + β      with the running μ and v, in training too

γ and β may still be trained. The state has the same names as that of BatchNorm, so checkpoints
load.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from onnxq.errors import OptionError
from torch_bridge.nn.adopt import adopt
from torch_bridge.nn.children import places

_STATE = {"weight", "bias", "running_mean", "running_var"}


class FrozenBatchNorm(_BatchNorm):
    """A batch norm that stays in evaluation mode."""

    thawed_class: ClassVar[type[_BatchNorm]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _require_statistics(self)
        self.training = False

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)

    @classmethod
    def from_float(cls, norm: _BatchNorm) -> Self:
        """The frozen form of a BatchNorm, with its parameters and buffers."""
        _require_statistics(norm)
        made = adopt(cls, norm)
        made.training = False
        return made

    def thaw(self, training: bool = True) -> _BatchNorm:
        """The BatchNorm it was made from, with the same parameters and buffers."""
        return adopt(self.thawed_class, self).train(training)


class FrozenBatchNorm1d(FrozenBatchNorm, nn.BatchNorm1d):
    """BatchNorm1d with fixed statistics."""

    thawed_class = nn.BatchNorm1d


class FrozenBatchNorm2d(FrozenBatchNorm, nn.BatchNorm2d):
    """BatchNorm2d with fixed statistics."""

    thawed_class = nn.BatchNorm2d


class FrozenBatchNorm3d(FrozenBatchNorm, nn.BatchNorm3d):
    """BatchNorm3d with fixed statistics."""

    thawed_class = nn.BatchNorm3d


class FrozenSyncBatchNorm(FrozenBatchNorm, nn.SyncBatchNorm):
    """SyncBatchNorm with fixed statistics."""

    thawed_class = nn.SyncBatchNorm


FROZEN: dict[type[nn.Module], type[FrozenBatchNorm]] = {
    frozen.thawed_class: frozen
    for frozen in (FrozenBatchNorm1d, FrozenBatchNorm2d, FrozenBatchNorm3d, FrozenSyncBatchNorm)
}
"""The frozen class of each BatchNorm class."""


def replace_foreign_frozen(model: nn.Module) -> list[str]:
    """Replace frozen batch norms of other libraries (buffers only), and return their paths.

    Detection libraries have their own FrozenBatchNorm2d, which a tracer decomposes into arithmetic.
    As a module it can be folded into the convolution before it.
    """
    made: dict[int, nn.Module] = {}
    replaced = []
    for place in places(model):
        if _is_foreign_frozen(place.child):
            place.put(made.setdefault(id(place.child), _from_buffers(place.child)))
            replaced.append(place.path)
    return replaced


def _is_foreign_frozen(module: nn.Module) -> bool:
    named = type(module).__name__ == "FrozenBatchNorm2d" and not isinstance(module, FrozenBatchNorm)
    return named and dict(module.named_buffers(recurse=False)).keys() >= _STATE


def _from_buffers(foreign: nn.Module) -> FrozenBatchNorm2d:
    buffers = dict(foreign.named_buffers(recurse=False))
    weight, eps = buffers["weight"], getattr(foreign, "eps", 1e-5)
    made = FrozenBatchNorm2d(weight.numel(), eps=eps, device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        for name in _STATE:
            getattr(made, name).copy_(buffers[name])
    return made.requires_grad_(False)


def _require_statistics(norm: _BatchNorm) -> None:
    if norm.running_mean is None or norm.running_var is None:
        raise OptionError(
            f"{type(norm).__name__} has no running statistics to freeze",
            fix="build the BatchNorm with track_running_stats=True",
        )
