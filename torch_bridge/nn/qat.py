"""Layers that compute with quantized weights.

    y = layer(FQ_x(x), FQ_w(W), FQ_b(b))

`weight_fake_quant` always exists; `bias_fake_quant` and `input_fake_quant` if the target wants them
(the input quantizer only if there is no graph to hold it). `weight` and `bias` keep their names of
the float layer, so float checkpoints load with strict=False.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from torch import Tensor, nn

from torch_bridge.nn.adopt import adopt
from torch_bridge.nn.layer_op import (
    ConvOp,
    ConvTransposeOp,
    EmbeddingOp,
    LinearOp,
    check_quantizable,
)


class QatLayer(nn.Module):
    """The base of all quantized layers."""

    weight: Tensor
    bias: Tensor | None
    apply_weights: Callable[..., Tensor]
    """The operator of the layer, applied with this weight and bias; see `layer_op`."""

    def __init__(
        self,
        *args: Any,
        weight_quantizer: nn.Module,
        bias_quantizer: nn.Module | None = None,
        input_quantizer: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._attach(weight_quantizer, bias_quantizer, input_quantizer)

    @classmethod
    def from_float(
        cls,
        layer: nn.Module,
        weight_quantizer: nn.Module,
        bias_quantizer: nn.Module | None = None,
        input_quantizer: nn.Module | None = None,
    ) -> Self:
        """The quantized form of `layer`, with its parameters (the same objects)."""
        check_quantizable(layer)
        made = adopt(cls, layer)
        made._attach(weight_quantizer, bias_quantizer, input_quantizer)
        return made

    def _attach(self, weight: nn.Module, bias: nn.Module | None, input_: nn.Module | None) -> None:
        check_quantizable(self)
        self.weight_fake_quant = weight
        self.bias_fake_quant = bias
        self.input_fake_quant = input_

    def quantize_input(self, x: Tensor) -> Tensor:
        """`x`, quantized if this layer quantizes its input."""
        return x if self.input_fake_quant is None else self.input_fake_quant(x)

    def quantize_bias(self, bias: Tensor | None) -> Tensor | None:
        """`bias`, quantized if there is a quantizer for it."""
        return bias if bias is None or self.bias_fake_quant is None else self.bias_fake_quant(bias)

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The layer, with its parameters quantized."""
        weight = self.weight_fake_quant(self.weight)
        bias = self.quantize_bias(getattr(self, "bias", None))
        return self.apply_weights(self.quantize_input(input), weight, bias, *args, **kwargs)


class QatConv1d(QatLayer, ConvOp, nn.Conv1d):
    """Conv1d with quantized parameters."""


class QatConv2d(QatLayer, ConvOp, nn.Conv2d):
    """Conv2d with quantized parameters."""


class QatConv3d(QatLayer, ConvOp, nn.Conv3d):
    """Conv3d with quantized parameters."""


class QatConvTranspose1d(QatLayer, ConvTransposeOp, nn.ConvTranspose1d):
    """ConvTranspose1d with quantized parameters."""


class QatConvTranspose2d(QatLayer, ConvTransposeOp, nn.ConvTranspose2d):
    """ConvTranspose2d with quantized parameters."""


class QatConvTranspose3d(QatLayer, ConvTransposeOp, nn.ConvTranspose3d):
    """ConvTranspose3d with quantized parameters."""


class QatLinear(QatLayer, LinearOp, nn.Linear):  # type: ignore[misc]
    """Linear with quantized parameters."""


class QatEmbedding(QatLayer, EmbeddingOp, nn.Embedding):
    """Embedding with quantized parameters."""
