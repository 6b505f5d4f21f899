"""Quantized layers with batch normalisation and activation, trained as they are deployed.

With f = γ / √(v + ε) from the running variance, split into f = g·r (`gain_split`), the deployed
layer is

    y = act(layer(x, FQ(W·r)·g, FQ_b((b - μ)·f + β)))                                    (deployed)

This is computed in eval mode and with frozen statistics: no batch normalisation is left to export
or fold. FQ(W·r)·g is on the grid of FQ with scales s·g, which the file has. With batch statistics
(training) it is

    y = act(BN(layer(x, FQ(W·r) / r, b)) + e),   e = FQ_b(b') - b',  b' = (b - μ)·f + β    (batch)

The weights are rounded to the codes that are deployed, and unscaled before the layer, not after it
(a layer is linear in its weights). So BN sees activations of the float magnitude and its running
statistics stay those of the float model. e is the error of quantizing the deployed bias (0 without
a bias quantizer); before BN the batch mean would cancel it. f is a constant in the backward pass of
this form: γ learns through BN.

γ < 0 needs no special case. With one scale per channel r is ±1, and training is that of a layer
whose BN is not folded. Otherwise, if |r| < SMALLEST_GAIN (γ = 0: the channel only adds β to the
output), the channel uses its float weights in the batch form. So nothing is divided by 0, and γ, W
and the statistics learn as in the float model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from onnxq.errors import UnsupportedModelError
from onnxq.operators.weight_axis import WeightAxis
from torch_bridge.fake_quant import FakeQuantize
from torch_bridge.fake_quant.fixed import Fixed
from torch_bridge.nn.bn_fold import SMALLEST_GAIN, folded_bias, gain
from torch_bridge.nn.fused import HasBatchNorm
from torch_bridge.nn.gain_split import split_gain
from torch_bridge.nn.layer_op import ConvOp, ConvTransposeOp, LinearOp
from torch_bridge.nn.layout import blend_channels, scale_channels, weight_layout
from torch_bridge.nn.qat import QatLayer


class FusedQatLayer(HasBatchNorm, QatLayer):
    """The base of all fused quantized layers; `from_float` takes fused and bare float layers."""

    def _attach(self, weight: nn.Module, bias: nn.Module | None, input_: nn.Module | None) -> None:
        super()._attach(weight, bias, input_)
        if isinstance(weight, FakeQuantize):
            weight.spends_gradient = True  # products and convolutions make new gradients
        if not hasattr(self, "bn"):
            self._join(None, None)

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The batch form if the batch norm trains, else the deployed form."""
        x = self.quantize_input(input)
        if self.bn is not None and self.bn.training:
            y = self._batch_form(self.bn, x, *args, **kwargs)
        else:
            weight, bias = self._deployed_weight(), self.quantize_bias(self._deployed_bias())
            y = self.apply_weights(x, weight, bias, *args, **kwargs)
            self._check_rank(y)
        return y if self.activation is None else self.activation(y)

    def deployed_parameters(self) -> tuple[Tensor, Tensor | None]:
        """W·f and (b - μ)·f + β, before their quantization."""
        if self.bn is None:
            return self.weight, self.bias
        weight = scale_channels(self.weight, gain(self.bn), weight_layout(self))
        return weight, self._deployed_bias()

    def _deployed_bias(self) -> Tensor | None:
        return self.bias if self.bn is None else folded_bias(self.bn, self.bias, gain(self.bn))

    def _deployed_weight(self) -> Tensor:
        """FQ(W·r)·g."""
        quantizer = self.weight_fake_quant
        if self.bn is None:
            return quantizer(self.weight)  # type: ignore[no-any-return]
        layout = weight_layout(self)
        scales, rest = split_gain(gain(self.bn), quantizer, layout)
        weight = scale_channels(self.weight, rest, layout)
        return quantizer(weight) if scales is None else quantizer(weight, scales)  # type: ignore[no-any-return]

    def fold_bn(self) -> None:
        """Replace weight and bias by the deployed ones and remove the batch norm, permanently.

        Weights are rounded from now on to the grid that the quantizer has now.
        """
        if self.bn is None:
            return
        with torch.no_grad():
            weight, bias = self.deployed_parameters()
            layout, quantizer = weight_layout(self), self.weight_fake_quant
            scales, rest = split_gain(gain(self.bn), quantizer, layout)
            if scales is not None and isinstance(quantizer, FakeQuantize) and quantizer.initialised:
                if quantizer.quantizing:
                    weight = quantizer.to_round(scale_channels(self.weight, rest, layout), scales)
                self.weight_fake_quant = _fixed(quantizer, scales)
        assert bias is not None
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.bn = None

    def _batch_form(self, bn: _BatchNorm, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        layout = weight_layout(self)
        with torch.no_grad():
            scales, rest = split_gain(gain(bn), self.weight_fake_quant, layout)
        if isinstance(self.weight_fake_quant, FakeQuantize):
            self.weight_fake_quant.gain = scales
        weight = self._unscaled(rest, layout)
        shift = self._bias_error(bn)
        y = self.apply_weights(x, weight, self.bias, *args, **kwargs)
        self._check_rank(y)
        normed: Tensor = bn(y)
        return normed if shift is None else normed + shift.view(-1, *[1] * (self.weight.dim() - 2))

    def _unscaled(self, r: Tensor, layout: WeightAxis) -> Tensor:
        """FQ(W·r) / r, and W where r is next to 0."""
        # Compiled code must not depend on the values of r.
        if not torch.compiler.is_compiling() and bool((r == 1).all()):
            return self.weight_fake_quant(self.weight)  # type: ignore[no-any-return]
        quantized = self.weight_fake_quant(scale_channels(self.weight, r, layout))
        tiny = r.abs() < SMALLEST_GAIN
        unscale = r.masked_fill(tiny, 1.0).reciprocal().masked_fill(tiny, 0.0)
        return blend_channels(quantized, unscale, self.weight, tiny.to(r.dtype), layout)

    def _bias_error(self, bn: _BatchNorm) -> Tensor | None:
        """FQ_b(b') - b' for the deployed bias b'; before BN moves the running statistics."""
        if self.bias_fake_quant is None:
            return None
        bias = folded_bias(bn, self.bias, gain(bn))
        rounded: Tensor = self.bias_fake_quant(bias)
        return rounded - bias

    def _check_rank(self, y: Tensor) -> None:
        # BN normalises dimension 1, which holds the channels of a Linear only in a matrix.
        if self.bn is not None and isinstance(self, nn.Linear) and y.dim() != 2:
            raise UnsupportedModelError(
                f"Linear + {type(self.bn).__name__} got a {y.dim()}-dimensional tensor, in which "
                "BN does not normalise the channels of Linear",
                fix="exclude this pair from fusion",
            )


def _fixed(quantizer: FakeQuantize, gain: Tensor) -> Fixed:
    """A quantizer with the grid of `quantizer` times `gain`, which does not learn."""
    made = Fixed(quantizer.spec, quantizer.observer, quantizer.name)
    scale = quantizer.scale * gain
    made.set_range(scale, quantizer.zero_point.expand(scale.shape))
    made.observing, made.quantizing = quantizer.observing, quantizer.quantizing
    return made.train(quantizer.training)


class FusedQatConv1d(FusedQatLayer, ConvOp, nn.Conv1d):
    """Quantized Conv1d with batch norm and activation."""


class FusedQatConv2d(FusedQatLayer, ConvOp, nn.Conv2d):
    """Quantized Conv2d with batch norm and activation."""


class FusedQatConv3d(FusedQatLayer, ConvOp, nn.Conv3d):
    """Quantized Conv3d with batch norm and activation."""


class FusedQatConvTranspose1d(FusedQatLayer, ConvTransposeOp, nn.ConvTranspose1d):
    """Quantized ConvTranspose1d with batch norm and activation."""


class FusedQatConvTranspose2d(FusedQatLayer, ConvTransposeOp, nn.ConvTranspose2d):
    """Quantized ConvTranspose2d with batch norm and activation."""


class FusedQatConvTranspose3d(FusedQatLayer, ConvTransposeOp, nn.ConvTranspose3d):
    """Quantized ConvTranspose3d with batch norm and activation."""


class FusedQatLinear(FusedQatLayer, LinearOp, nn.Linear):  # type: ignore[misc]
    """Quantized Linear with batch norm and activation."""
