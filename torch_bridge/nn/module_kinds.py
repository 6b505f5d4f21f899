"""The op kind of `onnxq.operators.placement` that each class of modules has.

The kind of a module is that of its class or of the nearest base class in the table, so quantized
and fused layers have the kind of their base. `torch_bridge.register_op_kind` adds classes.
"""

from __future__ import annotations

from torch import nn

_MODULE_NAMES: dict[str, str] = {
    "Conv": "Conv1d Conv2d Conv3d",
    "ConvTranspose": "ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "Linear": "Linear",
    "Embedding": "Embedding",
    "MaxPool": "MaxPool1d MaxPool2d MaxPool3d "
    "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d",
    "AveragePool": "AvgPool1d AvgPool2d AvgPool3d",
    "GlobalAveragePool": "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d",
    "BatchNormalization": "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm",
    "LayerNormalization": "LayerNorm",
    "PRelu": "PReLU",
    "Resize": "Upsample",
    "Relu": "ReLU",
    "Clip": "ReLU6 Hardtanh",
    "LeakyRelu": "LeakyReLU",
    "Elu": "ELU",
    "Gelu": "GELU",
    "Swish": "SiLU",
    "HardSwish": "Hardswish",
    "HardSigmoid": "Hardsigmoid",
    "Sigmoid": "Sigmoid",
    "Softmax": "Softmax",
    "Softplus": "Softplus",
    "Tanh": "Tanh",
    "Flatten": "Flatten",
    "Reshape": "Unflatten",
    "DepthToSpace": "PixelShuffle",
    "SpaceToDepth": "PixelUnshuffle",
    "Identity": "Identity",
    "Dropout": "Dropout Dropout1d Dropout2d Dropout3d",
    "Pad": "ZeroPad1d ZeroPad2d ZeroPad3d",
}

MODULES: dict[type[nn.Module], str] = {
    getattr(nn, name): kind for kind, names in _MODULE_NAMES.items() for name in names.split()
}
"""Classes of modules and their kinds."""


def module_kind(module: nn.Module) -> str | None:
    """The kind of a module; None if it has none."""
    return class_kind(type(module))


def class_kind(of: type[nn.Module]) -> str | None:
    """The kind of the modules of a class; None if they have none."""
    return next((MODULES[c] for c in of.__mro__ if c in MODULES), None)
