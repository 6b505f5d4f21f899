"""Float layers with the batch normalisation and the activation that follow them.

    y = activation(BN(layer(x)))        `bn` and `activation` are optional

A fused layer is a subclass of the torch layer, so `weight` and `bias` keep their names in the
state. The batch normalisation is the child `bn`, the activation the child `activation`. The
quantized forms use the same names and add their quantizers.
"""

from __future__ import annotations

from typing import Any, Self

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from onnxq.errors import UnsupportedModelError
from torch_bridge.nn.adopt import adopt
from torch_bridge.nn.bn_fold import is_batch_norm, why_not_foldable
from torch_bridge.nn.frozen_batch_norm import FrozenBatchNorm


class HasBatchNorm(nn.Module):
    """A layer with an optional `bn` whose statistics can be frozen."""

    bn: _BatchNorm | None
    activation: nn.Module | None
    bn_frozen: bool

    def __init__(
        self,
        *args: Any,
        bn: _BatchNorm | None = None,
        activation: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._join(bn, activation)

    def _join(self, bn: _BatchNorm | None, activation: nn.Module | None) -> None:
        reason = "" if bn is None else why_not_foldable(self, bn)
        if reason:
            raise UnsupportedModelError(
                f"{type(bn).__name__} cannot be fused into {type(self).__name__}: {reason}",
                fix="keep the batch norm as a module of its own",
            )
        self.bn = bn
        self.activation = activation
        self.bn_frozen = isinstance(bn, FrozenBatchNorm)

    def freeze_bn(self) -> None:
        """Use the running statistics without updating them, in training too."""
        self.bn_frozen = True
        if self.bn is not None:
            self.bn.eval()

    def unfreeze_bn(self) -> None:
        """Use and collect batch statistics in training again."""
        self.bn_frozen = False
        if self.bn is not None:
            self.bn.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of every child, but keep frozen statistics frozen."""
        super().train(mode)
        if self.bn_frozen and self.bn is not None:
            self.bn.eval()
        return self


class FusedLayer(HasBatchNorm):
    """The base of all fused float layers."""

    fused_pattern: str = ""
    """Name of the pattern that made it, which determines its quantized form."""

    @classmethod
    def from_float(cls, layer: nn.Module, *others: nn.Module) -> Self:
        """Fuse `layer` with the modules that follow it: a batch norm, an activation or both."""
        made = adopt(cls, layer)
        norms = [m for m in others if is_batch_norm(m)]
        activations = [m for m in others if not is_batch_norm(m)]
        if len(norms) > 1 or len(activations) > 1:
            raise UnsupportedModelError(
                f"{cls.__name__} holds one batch norm and one activation, not "
                + ", ".join(type(m).__name__ for m in others),
                fix="fuse the first of each and keep the others after the layer",
            )
        made._join(norms[0] if norms else None, activations[0] if activations else None)
        return made

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Layer, batch norm, activation."""
        y: Tensor = super().forward(input, *args, **kwargs)
        if self.bn is not None:
            y = self.bn(y)
        return y if self.activation is None else self.activation(y)


class FusedConv1d(FusedLayer, nn.Conv1d):
    """Conv1d with batch norm and activation."""


class FusedConv2d(FusedLayer, nn.Conv2d):
    """Conv2d with batch norm and activation."""


class FusedConv3d(FusedLayer, nn.Conv3d):
    """Conv3d with batch norm and activation."""


class FusedConvTranspose1d(FusedLayer, nn.ConvTranspose1d):
    """ConvTranspose1d with batch norm and activation."""


class FusedConvTranspose2d(FusedLayer, nn.ConvTranspose2d):
    """ConvTranspose2d with batch norm and activation."""


class FusedConvTranspose3d(FusedLayer, nn.ConvTranspose3d):
    """ConvTranspose3d with batch norm and activation."""


class FusedLinear(FusedLayer, nn.Linear):
    """Linear with batch norm and activation."""
