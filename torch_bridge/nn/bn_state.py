"""Freezing, thawing and folding the batch normalisations of a whole model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn

from onnxq.parsing.argument_types import takes
from torch_bridge.nn.bn_fold import is_batch_norm
from torch_bridge.nn.children import Place, places
from torch_bridge.nn.frozen_batch_norm import FROZEN, FrozenBatchNorm
from torch_bridge.nn.fused import HasBatchNorm
from torch_bridge.nn.fused_qat import FusedQatLayer

_FROZEN_HERE = "frozen_by_freeze_bn_stats"


@takes(model=nn.Module)
def freeze_bn_stats(model: nn.Module) -> nn.Module:
    """Stop every batch norm of `model` from using or collecting batch statistics.

    `model.train()` does not undo it. Batch norms inside fused layers are frozen there; others
    become FrozenBatchNorm modules with the same parameters.
    """
    frozen: dict[int, nn.Module] = {}
    for place in _alone(model):
        kind = FROZEN.get(type(place.child))
        if kind is not None and is_batch_norm(place.child):
            made = frozen.setdefault(id(place.child), kind.from_float(place.child))
            setattr(made, _FROZEN_HERE, True)
            place.put(made)
    for module in model.modules():
        if isinstance(module, HasBatchNorm):
            module.freeze_bn()
    return model


@takes(model=nn.Module)
def unfreeze_bn_stats(model: nn.Module) -> nn.Module:
    """Undo `freeze_bn_stats`; batch norms that were frozen before it stay frozen."""
    thawed: dict[int, nn.Module] = {}
    for place in _alone(model):
        if isinstance(place.child, FrozenBatchNorm) and getattr(place.child, _FROZEN_HERE, False):
            made = thawed.setdefault(id(place.child), place.child.thaw(place.parent.training))
            place.put(made)
    for made in thawed.values():
        delattr(made, _FROZEN_HERE)
    for module in model.modules():
        if isinstance(module, HasBatchNorm) and not isinstance(module.bn, FrozenBatchNorm):
            module.unfreeze_bn()
    return model


def fold_bn(model: nn.Module) -> nn.Module:
    """Fold every batch norm of the fused quantized layers of `model`, in place and permanently.

    Eval mode computes the same before and after, since it folds by the same operations. An exporter
    then writes the folded weight and bias instead of folding by its own arithmetic.
    """
    for module in model.modules():
        if isinstance(module, FusedQatLayer):
            module.fold_bn()
    return model


@contextlib.contextmanager
def folded_bn(model: nn.Module) -> Iterator[nn.Module]:
    """Fold the batch norms of `model` inside the block, then restore its parameters."""
    layers = [module for module in model.modules() if isinstance(module, FusedQatLayer)]
    kept = [(layer.weight, layer.bias, layer.bn, layer.weight_fake_quant) for layer in layers]
    try:
        yield fold_bn(model)
    finally:
        for layer, (weight, bias, bn, quantizer) in zip(layers, kept, strict=True):
            layer.weight, layer.bias, layer.bn = weight, bias, bn
            layer.weight_fake_quant = quantizer


def _alone(model: nn.Module) -> list[Place]:
    """The places of all modules except those in a fused layer."""
    return [place for place in places(model) if not isinstance(place.parent, HasBatchNorm)]
