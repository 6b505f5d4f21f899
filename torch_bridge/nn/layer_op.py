"""The operators of layers, applied with a given weight and bias.

Each class is mixed into a torch layer and adds `apply_weights(x, weight, bias)`, from which the
generic modules of this package are built. Nothing else in the package depends on the kind of layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from onnxq.errors import UnsupportedModelError


class ConvOp(_ConvNd):
    """Convolution, with every padding mode of torch (zeros, reflect, replicate, circular)."""

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution of `x` with `weight`."""
        return self._conv_forward(x, weight, bias)


class ConvTransposeOp(_ConvTransposeNd):
    """Transposed convolution; torch pads it only with zeros."""

    padding: tuple[int, ...]

    def apply_weights(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        """The transposed convolution of `x` with `weight`."""
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[weight.dim() - 3]
        sizes: Any = (self.stride, self.padding, self.kernel_size, weight.dim() - 2, self.dilation)
        wanted = None if output_size is None else list(output_size)
        extra = self._output_padding(x, wanted, *sizes)
        return convolve(
            x, weight, bias, self.stride, self.padding, extra, self.groups, self.dilation
        )


class LinearOp:
    """Matrix product with the transposed weight."""

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The product x·weightᵀ + bias."""
        return F.linear(x, weight, bias)


class EmbeddingOp(nn.Embedding):
    """Rows of the weight, by index."""

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The rows of `weight` with the indices `x`."""
        return F.embedding(x, weight, self.padding_idx, scale_grad_by_freq=self.scale_grad_by_freq)


def why_not_quantizable(layer: nn.Module) -> str:
    """The reason why the weight of `layer` cannot be replaced in its operator; "" if it can."""
    if "weight" not in dict(layer.named_parameters(recurse=False)):
        return "its weight is computed by a hook or parametrization, not a parameter of its own"
    if isinstance(layer, nn.Embedding) and layer.max_norm is not None:
        return "max_norm renormalises the weight in place, which would undo its quantization"
    if isinstance(layer, nn.Embedding) and layer.sparse:
        return "sparse gradients do not pass through a quantizer"
    return ""


def check_quantizable(layer: nn.Module) -> None:
    """Raise if the weight of `layer` cannot be replaced in its operator."""
    reason = why_not_quantizable(layer)
    if reason:
        raise UnsupportedModelError(
            f"{type(layer).__name__} cannot be quantized: {reason}",
            fix="change the layer (such as removing its weight normalisation), or leave it float",
        )
