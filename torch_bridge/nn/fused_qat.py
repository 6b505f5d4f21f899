"""Quantized layers with batch normalisation and activation: what is trained is what is deployed.

With f = γ / √(v + ε) from the running variance, the deployed layer is

    y = act(layer(x, FQ(W·f), FQ_b((b - μ)·f + β)))                                     (deployed)

and that is what is computed in eval and with frozen statistics: no batch normalisation is left
to export or fold. With batch statistics (training) it is

    y = act(BN(layer(x, FQ(W·f) / f, b)) + e),   e = FQ_b(b') - b',  b' = (b - μ)·f + β    (batch)

The weights are quantized on the deployed grid, and unscaled before the layer rather than after it
(a layer is linear in its weights), so BN sees activations of the float size and its running
statistics stay those of the float model. e is the error that quantizing the deployed bias makes
(0 without a bias quantizer); before BN the batch mean would cancel it. f is a constant in the
backward pass of this form: γ learns through BN.

γ < 0 needs nothing special: f / f = 1. Where |f| < SMALLEST_GAIN (γ = 0: all that the channel
adds to the output is β) the channel uses its float weights in the batch form, so that nothing is
divided by 0 and γ, W and the statistics learn as in the float model.
"""

from __future__ import annotations

from typing import Any, Self

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
    """The base of all fused quantized layers."""

    @classmethod
    def from_float(
        cls,
        layer: nn.Module,
        weight_quantizer: nn.Module,
        bias_quantizer: nn.Module | None = None,
        input_quantizer: nn.Module | None = None,
    ) -> Self:
        """The quantized form of a fused float layer (or of a bare one)."""
        made = super().from_float(layer, weight_quantizer, bias_quantizer, input_quantizer)
        if not isinstance(layer, HasBatchNorm):
            made._join(None, None)
        return made

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The batch form where the batch norm trains, else the deployed form."""
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
        """Make the deployed weight and bias the layer's own and drop the batch norm, for good."""
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
        """FQ(W·f) / f without making W·f, where scales run along the output channels.

        The weights are most of what a small batch touches: one pass over them instead of three.
        """
        quantizer, size = self.weight_fake_quant, f.abs()
        if (
            torch.compiler.is_compiling()  # the values of f must not decide there
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
        # BN normalises dimension 1; a Linear's channels are there in a matrix only.
        if self.bn is not None and isinstance(self, nn.Linear) and y.dim() != 2:
            raise UnsupportedModelError(
                f"Linear + {type(self.bn).__name__} got a {y.dim()}-dimensional tensor, and "
                "BN normalises another dimension than the one that Linear makes",
                fix="exclude this pair from fusion",
            )


def _has_hooks(module: nn.Module) -> bool:
    """Whether a hook sees the values of this module: torch asks the same in a call."""
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
