"""The axis of the output channels in the weight of a torch layer, and how to scale them.

    layer             weight layout                axis   counted
    Conv1d/2d/3d      (C_out, C_in/g, k...)        0      once
    ConvTranspose     (C_in, C_out/g, k...)        1      once per group
    Linear            (C_out, C_in)                0      once
    Embedding         (entries, features)          none: one scale per tensor by default

A class that is none of these has the layout of the op kind that it was registered with. The axes
are those of `onnxq.operators.weight_axis` for the exported nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from onnxq.errors import UnsupportedModelError
from onnxq.operators.weight_axis import WeightAxis
from torch_bridge.nn.module_kinds import module_kind


def weight_layout(layer: nn.Module) -> WeightAxis:
    """The output channels in the weight of `layer`, which computes a convolution or Linear."""
    if isinstance(layer, _ConvTransposeNd):
        return WeightAxis(1, layer.groups)
    if isinstance(layer, _ConvNd | nn.Linear):
        return WeightAxis(0, 1)
    kind = module_kind(layer)
    if kind == "ConvTranspose":
        return WeightAxis(1, getattr(layer, "groups", 1))
    if kind in ("Conv", "Linear"):
        return WeightAxis(0, 1)
    raise UnsupportedModelError(
        f"{type(layer).__name__} has no output-channel axis",
        fix="only convolutions, transposed convolutions and Linear have one; a class of your own "
        f"has it after torch_bridge.register_op_kind({type(layer).__name__}, 'Conv')",
    )


def channel_axis(layer: nn.Module) -> int | None:
    """The axis for one weight scale per output channel; None for one scale per tensor."""
    is_table = isinstance(layer, nn.Embedding) or module_kind(layer) == "Embedding"
    return None if is_table else weight_layout(layer).axis


def out_channels(layer: nn.Module) -> int:
    """Number of output channels."""
    assert isinstance(layer.weight, Tensor)
    return weight_layout(layer).channels(tuple(layer.weight.shape))


def scale_channels(weight: Tensor, gain: Tensor, layout: WeightAxis) -> Tensor:
    """`weight` with each output channel multiplied by its entry of `gain`.

    Uses only Mul and Reshape, which every exporter folds if both are constant.
    """
    return (_grouped(weight, layout) * _per_channel(gain, weight, layout)).view(weight.shape)


def blend_channels(
    first: Tensor, first_gain: Tensor, second: Tensor, second_gain: Tensor, layout: WeightAxis
) -> Tensor:
    """The sum of `first` and `second`, each with its output channels multiplied by its gain."""
    scaled = _grouped(first, layout) * _per_channel(first_gain, first, layout)
    gain = _per_channel(second_gain, second, layout)
    return torch.addcmul(scaled, _grouped(second, layout), gain).view(first.shape)


def _grouped(weight: Tensor, layout: WeightAxis) -> Tensor:
    """`weight`, viewed as (g, C_in/g, C_out/g, k...) if there are groups.

    Group i of a transposed convolution has rows i and channels i.
    """
    if layout.groups == 1:
        return weight
    rows, *rest = weight.shape
    return weight.view(layout.groups, rows // layout.groups, *rest)


def _per_channel(gain: Tensor, weight: Tensor, layout: WeightAxis) -> Tensor:
    """`gain`, viewed so that it broadcasts against `_grouped(weight)`."""
    if layout.groups == 1:
        view = [1] * weight.dim()
        view[layout.axis] = -1
        return gain.view(view)
    _, columns, *kernel = weight.shape
    return gain.view(layout.groups, 1, columns, *[1] * len(kernel))
