"""The float32 form of a model that was trained in another type: files compute in float32.

A target multiplies codes and scales its sums in float32, whatever type torch trained with. Scales
are float32 in training already; weights of bfloat16 and float16 become float32 exactly, those of
float64 are rounded. The copy is what is exported, and what the file is compared with.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from torch_bridge.fake_quant import FakeQuantize


class SinglePrecision(NamedTuple):
    """A model and its call in float32."""

    model: nn.Module
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    note: str
    """What was changed; '' if nothing was."""


def in_single_precision(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> SinglePrecision:
    """`model` itself if its parameters are float32, else a copy of it; the call likewise."""
    others = {
        str(p.dtype).removeprefix("torch.")
        for module in model.modules()
        if not isinstance(module, FakeQuantize)
        for p in module.parameters(recurse=False)
        if p.is_floating_point() and p.dtype is not torch.float32
    }
    if not others:
        return SinglePrecision(model, args, kwargs, "")
    note = f"the model computes in {' and '.join(sorted(others))}; the file is its float32 form"
    given, values = pytree.tree_map_only(Tensor, _widened, (tuple(args), dict(kwargs or {})))
    return SinglePrecision(copy.deepcopy(model).float(), given, values, note)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
