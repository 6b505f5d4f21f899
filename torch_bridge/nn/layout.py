"""The axis of the output channels in a torch layer's weight, and how to scale them.

    layer             weight layout                axis   counted
    Conv1d/2d/3d      (C_out, C_in/g, k...)        0      once
    ConvTranspose     (C_in, C_out/g, k...)        1      once per group
    Linear            (C_out, C_in)                0      once
    Embedding         (entries, features)          none: one scale per tensor by default

The axes are those of `onnxq.operators.weight_axis` for the nodes the layers are exported as.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onnxq.errors import UnsupportedModelError
from onnxq.operators.weight_axis import WeightAxis

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def weight_layout(layer: nn.Module) -> WeightAxis:
    """The output channels in the weight of `layer` (a convolution or Linear)."""
    if isinstance(layer, CONVOLUTIONS):
        return WeightAxis(0, 1)
    if isinstance(layer, TRANSPOSED):
        return WeightAxis(1, layer.groups)
    if isinstance(layer, nn.Linear):
        return WeightAxis(0, 1)
    raise UnsupportedModelError(
        f"{type(layer).__name__} has no output-channel axis",
        fix="only convolutions, transposed convolutions and Linear have one",
    )


def channel_axis(layer: nn.Module) -> int | None:
    """The axis for one weight scale per output channel; None where scales are per tensor."""
    return None if isinstance(layer, nn.Embedding) else weight_layout(layer).axis


def out_channels(layer: nn.Module) -> int:
    """Number of output channels."""
    assert isinstance(layer.weight, Tensor)
    return weight_layout(layer).channels(tuple(layer.weight.shape))


def scale_channels(weight: Tensor, gain: Tensor, layout: WeightAxis) -> Tensor:
    """`weight` with each output channel multiplied by its entry of `gain`.

    Only Mul and Reshape, which every exporter folds where both are constant.
    """
    return (_grouped(weight, layout) * _per_channel(gain, weight, layout)).view(weight.shape)


def blend_channels(
    first: Tensor, first_gain: Tensor, second: Tensor, second_gain: Tensor, layout: WeightAxis
) -> Tensor:
    """`first` and `second`, each with its output channels multiplied by its gain, added."""
    scaled = _grouped(first, layout) * _per_channel(first_gain, first, layout)
    gain = _per_channel(second_gain, second, layout)
    return torch.addcmul(scaled, _grouped(second, layout), gain).view(first.shape)


def _grouped(weight: Tensor, layout: WeightAxis) -> Tensor:
    """`weight`; of a grouped transposed convolution as (g, C_in/g, C_out/g, k...).

    There group i owns rows and channels i.
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
