"""Quantized layers with batch normalisation and activation, trained as they are deployed.

With f = γ / √(v + ε) from the running variance, the deployed layer is

    y = act(layer(x, FQ(W·f), FQ_b((b - μ)·f + β)))                                     (deployed)

This is computed in eval mode and with frozen statistics: no batch normalisation is left to export
or fold. With batch statistics (training) it is

    y = act(BN(layer(x, FQ(W·f) / f, b)) + e),   e = FQ_b(b') - b',  b' = (b - μ)·f + β    (batch)

The weights are quantized on the deployed grid, and unscaled before the layer, not after it (a layer
is linear in its weights). So BN sees activations of the float magnitude and its running statistics
stay those of the float model. e is the error of quantizing the deployed bias (0 without a bias
quantizer); before BN the batch mean would cancel it. f is a constant in the backward pass of this
form: γ learns through BN.

γ < 0 needs no special case: f / f = 1. If |f| < SMALLEST_GAIN (γ = 0: the channel only adds β to
the output), the channel uses its float weights in the batch form. So nothing is divided by 0, and
γ, W and the statistics learn as in the float model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from onnxq.errors import UnsupportedModelError
from onnxq.operators.weight_axis import WeightAxis
from torch_bridge.fake_quant import FakeQuantize
from torch_bridge.nn.bn_fold import SMALLEST_GAIN, folded_bias, gain
from torch_bridge.nn.fused import HasBatchNorm
from torch_bridge.nn.layer_op import ConvOp, ConvTransposeOp, LinearOp
from torch_bridge.nn.layout import blend_channels, scale_channels, weight_layout
from torch_bridge.nn.qat import QatLayer


class FusedQatLayer(HasBatchNorm, QatLayer):
    """The base of all fused quantized layers; `from_float` takes fused and bare float layers."""

    def _attach(self, weight: nn.Module, bias: nn.Module | None, input_: nn.Module | None) -> None:
        super()._attach(weight, bias, input_)
        if not hasattr(self, "bn"):
            self._join(None, None)

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The batch form if the batch norm trains, else the deployed form."""
        x = self.quantize_input(input)
        if self.bn is not None and self.bn.training:
            y = self._batch_form(self.bn, x, *args, **kwargs)
        else:
            weight, bias = self.deployed_parameters()
            weight, bias = self.weight_fake_quant(weight), self.quantize_bias(bias)
            y = self.apply_weights(x, weight, bias, *args, **kwargs)
            self._check_rank(y)
        return y if self.activation is None else self.activation(y)

    def deployed_parameters(self) -> tuple[Tensor, Tensor | None]:
        """W·f and (b - μ)·f + β, before their quantization."""
        if self.bn is None:
            return self.weight, self.bias
        f = gain(self.bn)
        weight = scale_channels(self.weight, f, weight_layout(self))
        return weight, folded_bias(self.bn, self.bias, f)

    def fold_bn(self) -> None:
        """Replace weight and bias by the deployed ones and remove the batch norm, permanently."""
        with torch.no_grad():
            weight, bias = self.deployed_parameters()
        if self.bn is not None and bias is not None:
            self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
            self.bn = None

    def _batch_form(self, bn: _BatchNorm, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        layout = weight_layout(self)
        with torch.no_grad():
            f = gain(bn)
        weight = self._quantized_at_once(f, layout)
        if weight is None:
            tiny = f.abs() < SMALLEST_GAIN
            quantized = self.weight_fake_quant(scale_channels(self.weight, f, layout))
            unscale = f.masked_fill(tiny, 1.0).reciprocal().masked_fill(tiny, 0.0)
            weight = blend_channels(quantized, unscale, self.weight, tiny.to(f.dtype), layout)
        shift = self._bias_error(bn)
        y = self.apply_weights(x, weight, self.bias, *args, **kwargs)
        self._check_rank(y)
        normed: Tensor = bn(y)
        return normed if shift is None else normed + shift.view(-1, *[1] * (self.weight.dim() - 2))

    def _quantized_at_once(self, f: Tensor, layout: WeightAxis) -> Tensor | None:
        """FQ(W·f) / f without computing W·f, for scales along the output channels; else None.

        For a small batch, weights are most of the memory touched: one pass instead of three.
        """
        quantizer, size = self.weight_fake_quant, f.abs()
        if (
            torch.compiler.is_compiling()  # compiled code must not depend on the values of f
            or not isinstance(quantizer, FakeQuantize)
            or layout.groups != 1
            or quantizer.spec.axis != layout.axis
            or _has_hooks(quantizer)
            or size.min().item() < SMALLEST_GAIN
        ):
            return None
        return quantizer.quantize_scaled(self.weight, size)

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


def _has_hooks(module: nn.Module) -> bool:
    """Whether a hook sees the values of this module, as torch determines in a call."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
    )


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
