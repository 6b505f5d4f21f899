"""The layers' operators with another weight and bias than their own.

Each class is mixed into a torch layer and gives it `apply_weights(x, weight, bias)`, from which
the generic modules of this package are built. Nothing else here depends on the kind of layer.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Transposed convolution; torch pads it with zeros only."""

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
        extra: Sequence[int] = self.output_padding
        if output_size is not None:
            extra = padding_for(self, x, output_size)
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
        """The rows of `weight` that `x` names."""
        return F.embedding(x, weight, self.padding_idx, scale_grad_by_freq=self.scale_grad_by_freq)


def padding_for(layer: ConvTransposeOp, x: Tensor, output_size: Sequence[int]) -> list[int]:
    """The output padding that makes a transposed convolution return `output_size`.

    Without padding the size is (n-1) * stride - 2 * padding + dilation * (kernel-1) + 1; at most
    stride - 1 elements may be added.
    """
    spatial = len(layer.kernel_size)
    wanted = list(output_size)[-spatial:]
    if len(output_size) not in (spatial, x.dim()):
        raise ValueError(f"output_size must have {spatial} or {x.dim()} elements: {output_size}")
    extra = []
    for i, size in enumerate(x.shape[-spatial:]):
        reach = layer.dilation[i] * (layer.kernel_size[i] - 1) + 1
        least = (size - 1) * layer.stride[i] - 2 * layer.padding[i] + reach
        most = least + layer.stride[i] - 1
        if not least <= wanted[i] <= most:
            raise ValueError(
                f"output_size {wanted} is impossible for input {tuple(x.shape)}: "
                f"dimension {i} can be {least}..{most}"
            )
        extra.append(wanted[i] - least)
    return extra


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
    """Raise where the weight of `layer` cannot be replaced in its operator."""
    reason = why_not_quantizable(layer)
    if reason:
        raise UnsupportedModelError(
            f"{type(layer).__name__} cannot be quantized: {reason}",
            fix="change the layer (e.g. remove the weight normalisation), or leave it float",
        )
