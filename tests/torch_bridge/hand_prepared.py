"""Models prepared layer by layer, without fusion or placement rules: all a test of state needs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from onnxq.canonical.fake_quantize import narrowest
from onnxq.quant.qtypes import qtype
from torch_bridge import nn as qnn
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.fake_quant import FakeQuantize, algorithm
from torch_bridge.observers import observer
from torch_bridge.state import enable_calibration, enable_quantization

Range = tuple[int, int]

_LAYERS: dict[type[nn.Module], Any] = {
    nn.Conv1d: qnn.QatConv1d,
    nn.Conv2d: qnn.QatConv2d,
    nn.Conv3d: qnn.QatConv3d,
    nn.ConvTranspose2d: qnn.QatConvTranspose2d,
    nn.ConvTranspose3d: qnn.QatConvTranspose3d,
    nn.Linear: qnn.QatLinear,
}


def quantizer(codes: Range, *, axis: int | None = None, method: str = "lsq") -> FakeQuantize:
    """A quantizer for codes lo..hi; symmetric where they are signed."""
    lo, hi = codes
    wide = qtype("int16" if lo < 0 else "uint16")
    spec = QuantizerSpec(narrowest(wide, lo, hi), lo, hi, symmetric=lo < 0, axis=axis)
    return algorithm(method)(spec, observer("minmax")(spec))


def hand_prepared(
    model: nn.Module,
    *,
    weight: Range = (-127, 127),
    activation: Range = (0, 255),
    method: str = "lsq",
) -> nn.Module:
    """`model` with every layer quantized: its weights per channel, and what it reads."""
    for name, child in list(model.named_children()):
        made = _LAYERS.get(type(child))
        if made is None:
            hand_prepared(child, weight=weight, activation=activation, method=method)
            continue
        weights = quantizer(weight, axis=qnn.channel_axis(child), method=method)
        inputs = quantizer(activation, method=method)
        setattr(model, name, made.from_float(child, weights, input_quantizer=inputs))
    return model


def calibrated(model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """`model` with ranges from one call, quantizing."""
    enable_calibration(model)
    with torch.no_grad():
        model.eval()(*args, **kwargs)
    enable_quantization(model)
    return model.train()
