"""A third-party layer and fusion pattern: a causal convolution, with what may follow it.

    torch.nn         fused (float)         quantized         fused and quantized
    CausalConv1d     FusedCausalConv1d     QatCausalConv1d   FusedQatCausalConv1d

All four have the same `weight` and `bias`.
"""

from torch import Tensor, nn
from torch.nn import functional as F

import torch_bridge as tb
from torch_bridge import nn as qnn


class CausalConv1d(nn.Conv1d):
    """A convolution that sees the past only: zeros are put in front of the first step."""

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer with any weight and bias: quantized forms call it with theirs."""
        past = (self.kernel_size[0] - 1) * self.dilation[0]
        return self._conv_forward(F.pad(x, (past, 0)), weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        """The layer with its own weight and bias."""
        return self.apply_weights(x, self.weight, self.bias)


class FusedCausalConv1d(qnn.FusedLayer, CausalConv1d):
    """The layer, its batch norm and its activation, in float."""


class QatCausalConv1d(qnn.QatLayer, CausalConv1d):
    """The layer with a quantized weight."""


class FusedQatCausalConv1d(qnn.FusedQatLayer, CausalConv1d):
    """The layer with a quantized weight, its batch norm folded into it, and its activation."""


CAUSAL = tb.Link("CausalConv1d", (CausalConv1d,))
NORM = tb.Link("BatchNorm", (nn.BatchNorm1d,))
LEAKY = tb.Link("LeakyReLU", (nn.LeakyReLU,), functions=(F.leaky_relu,))


def fused(*chain: tb.Link) -> tb.Pattern:
    """The pattern of a chain that starts with the layer."""
    name = "+".join(link.name for link in chain)
    return tb.Pattern(name, chain, fused=FusedCausalConv1d, qat=FusedQatCausalConv1d)


PATTERNS = (
    tb.Pattern("CausalConv1d", (CAUSAL,), qat=QatCausalConv1d),
    fused(CAUSAL, NORM),
    fused(CAUSAL, LEAKY),
    fused(CAUSAL, NORM, LEAKY),
)
