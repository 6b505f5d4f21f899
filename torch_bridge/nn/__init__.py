"""Layers for training: fused float, quantized, and fused quantized forms of torch's layers.

    torch.nn      fused (float)             quantized          fused and quantized
    Conv2d        FusedConv2d               QatConv2d          FusedQatConv2d
    ...           layer [+ bn] [+ act]      FQ(W)              FQ(W·f) [+ act], deployed in eval

All four have `weight` and `bias`. The fused ones add `bn` and `activation`, the quantized ones
`weight_fake_quant` and, if wanted, `bias_fake_quant` and `input_fake_quant`.
"""

from torch_bridge.nn.bn_state import fold_bn, folded_bn, freeze_bn_stats, unfreeze_bn_stats
from torch_bridge.nn.frozen_batch_norm import (
    FrozenBatchNorm,
    FrozenBatchNorm1d,
    FrozenBatchNorm2d,
    FrozenBatchNorm3d,
    FrozenSyncBatchNorm,
    replace_foreign_frozen,
)
from torch_bridge.nn.fused import (
    FusedConv1d,
    FusedConv2d,
    FusedConv3d,
    FusedConvTranspose1d,
    FusedConvTranspose2d,
    FusedConvTranspose3d,
    FusedLayer,
    FusedLinear,
    HasBatchNorm,
)
from torch_bridge.nn.fused_qat import (
    FusedQatConv1d,
    FusedQatConv2d,
    FusedQatConv3d,
    FusedQatConvTranspose1d,
    FusedQatConvTranspose2d,
    FusedQatConvTranspose3d,
    FusedQatLayer,
    FusedQatLinear,
)
from torch_bridge.nn.layout import channel_axis
from torch_bridge.nn.qat import (
    QatConv1d,
    QatConv2d,
    QatConv3d,
    QatConvTranspose1d,
    QatConvTranspose2d,
    QatConvTranspose3d,
    QatEmbedding,
    QatLayer,
    QatLinear,
)

__all__ = [
    "FrozenBatchNorm",
    "FrozenBatchNorm1d",
    "FrozenBatchNorm2d",
    "FrozenBatchNorm3d",
    "FrozenSyncBatchNorm",
    "FusedConv1d",
    "FusedConv2d",
    "FusedConv3d",
    "FusedConvTranspose1d",
    "FusedConvTranspose2d",
    "FusedConvTranspose3d",
    "FusedLayer",
    "FusedLinear",
    "FusedQatConv1d",
    "FusedQatConv2d",
    "FusedQatConv3d",
    "FusedQatConvTranspose1d",
    "FusedQatConvTranspose2d",
    "FusedQatConvTranspose3d",
    "FusedQatLayer",
    "FusedQatLinear",
    "HasBatchNorm",
    "QatConv1d",
    "QatConv2d",
    "QatConv3d",
    "QatConvTranspose1d",
    "QatConvTranspose2d",
    "QatConvTranspose3d",
    "QatEmbedding",
    "QatLayer",
    "QatLinear",
    "channel_axis",
    "fold_bn",
    "folded_bn",
    "freeze_bn_stats",
    "replace_foreign_frozen",
    "unfreeze_bn_stats",
]
