"""The op kind of `onnxq.quant.placement` that each node of an FX graph has.

Modules go by their class or the nearest base class in the table, so quantized and fused layers
are what their base is. In-place and method forms are the same kind as the function.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from torch_bridge.capture.value_types import FLOAT

MODULES: dict[type[nn.Module], str] = {
    nn.Conv1d: "Conv",
    nn.Conv2d: "Conv",
    nn.Conv3d: "Conv",
    nn.ConvTranspose1d: "ConvTranspose",
    nn.ConvTranspose2d: "ConvTranspose",
    nn.ConvTranspose3d: "ConvTranspose",
    nn.Linear: "Linear",
    nn.Embedding: "Embedding",
    nn.MaxPool1d: "MaxPool",
    nn.MaxPool2d: "MaxPool",
    nn.MaxPool3d: "MaxPool",
    nn.AdaptiveMaxPool1d: "MaxPool",
    nn.AdaptiveMaxPool2d: "MaxPool",
    nn.AdaptiveMaxPool3d: "MaxPool",
    nn.AvgPool1d: "AveragePool",
    nn.AvgPool2d: "AveragePool",
    nn.AvgPool3d: "AveragePool",
    nn.AdaptiveAvgPool1d: "GlobalAveragePool",
    nn.AdaptiveAvgPool2d: "GlobalAveragePool",
    nn.AdaptiveAvgPool3d: "GlobalAveragePool",
    nn.BatchNorm1d: "BatchNormalization",
    nn.BatchNorm2d: "BatchNormalization",
    nn.BatchNorm3d: "BatchNormalization",
    nn.SyncBatchNorm: "BatchNormalization",
    nn.LayerNorm: "LayerNormalization",
    nn.PReLU: "PRelu",
    nn.Upsample: "Resize",
    nn.ReLU: "Relu",
    nn.ReLU6: "Clip",
    nn.Hardtanh: "Clip",
    nn.LeakyReLU: "LeakyRelu",
    nn.ELU: "Elu",
    nn.GELU: "Gelu",
    nn.SiLU: "Swish",
    nn.Hardswish: "HardSwish",
    nn.Hardsigmoid: "HardSigmoid",
    nn.Sigmoid: "Sigmoid",
    nn.Softmax: "Softmax",
    nn.Tanh: "Tanh",
    nn.Flatten: "Flatten",
    nn.Unflatten: "Reshape",
    nn.Identity: "Identity",
    nn.Dropout: "Dropout",
    nn.Dropout1d: "Dropout",
    nn.Dropout2d: "Dropout",
    nn.Dropout3d: "Dropout",
    nn.ZeroPad1d: "Pad",
    nn.ZeroPad2d: "Pad",
    nn.ZeroPad3d: "Pad",
    nn.PixelShuffle: "Reshape",
    nn.PixelUnshuffle: "Reshape",
}
"""Classes of modules and their kinds."""

_NAMES: dict[str, tuple[str, ...]] = {
    "Add": ("add", "add_"),
    "Sub": ("sub", "sub_", "subtract"),
    "Mul": ("mul", "mul_", "multiply"),
    "Div": ("div", "div_", "divide", "true_divide"),
    "MatMul": ("matmul", "bmm", "mm"),
    "Concat": ("cat", "concat", "concatenate"),
    "ReduceMean": ("mean",),
    "ReduceSum": ("sum",),
    "Relu": ("relu", "relu_"),
    "Clip": ("clamp", "clamp_", "clip"),
    "Sigmoid": ("sigmoid", "sigmoid_"),
    "Softmax": ("softmax",),
    "Tanh": ("tanh", "tanh_"),
    "Flatten": ("flatten", "ravel"),
    "Reshape": ("reshape", "view", "unflatten", "view_as", "reshape_as"),
    "Transpose": ("permute", "transpose", "swapaxes", "movedim", "t"),
    "Squeeze": ("squeeze",),
    "Unsqueeze": ("unsqueeze",),
    "Expand": ("expand", "expand_as", "broadcast_to"),
    "Tile": ("tile", "repeat"),
    "Split": ("chunk", "split", "unbind", "tensor_split"),
    "Slice": ("narrow", "select"),
    "Identity": ("contiguous", "clone", "detach", "float", "to", "type_as"),
}
"""Names that a function of torch and a method of tensors have in common."""

METHODS: dict[str, str] = {name: kind for kind, names in _NAMES.items() for name in names}
"""Methods of tensors and their kinds."""

FUNCTIONS: dict[Callable[..., Any], str] = {
    **{
        getattr(torch, name): kind
        for name, kind in METHODS.items()
        if callable(getattr(torch, name, None)) and not isinstance(getattr(torch, name), type)
    },
    operator.add: "Add",
    operator.iadd: "Add",
    operator.sub: "Sub",
    operator.isub: "Sub",
    operator.mul: "Mul",
    operator.imul: "Mul",
    operator.truediv: "Div",
    operator.itruediv: "Div",
    operator.matmul: "MatMul",
    torch.einsum: "MatMul",
    F.conv1d: "Conv",
    F.conv2d: "Conv",
    F.conv3d: "Conv",
    F.conv_transpose1d: "ConvTranspose",
    F.conv_transpose2d: "ConvTranspose",
    F.conv_transpose3d: "ConvTranspose",
    F.linear: "Linear",
    F.embedding: "Embedding",
    F.max_pool1d: "MaxPool",
    F.max_pool2d: "MaxPool",
    F.max_pool3d: "MaxPool",
    torch.max_pool1d: "MaxPool",
    torch.max_pool2d: "MaxPool",
    torch.max_pool3d: "MaxPool",
    F.adaptive_max_pool1d: "MaxPool",
    F.adaptive_max_pool2d: "MaxPool",
    F.adaptive_max_pool3d: "MaxPool",
    F.avg_pool1d: "AveragePool",
    F.avg_pool2d: "AveragePool",
    F.avg_pool3d: "AveragePool",
    F.adaptive_avg_pool1d: "GlobalAveragePool",
    F.adaptive_avg_pool2d: "GlobalAveragePool",
    F.adaptive_avg_pool3d: "GlobalAveragePool",
    F.batch_norm: "BatchNormalization",
    F.layer_norm: "LayerNormalization",
    F.prelu: "PRelu",
    F.interpolate: "Resize",
    F.relu: "Relu",
    F.relu_: "Relu",
    F.relu6: "Clip",
    F.hardtanh: "Clip",
    F.leaky_relu: "LeakyRelu",
    F.elu: "Elu",
    F.gelu: "Gelu",
    F.silu: "Swish",
    F.hardswish: "HardSwish",
    F.hardsigmoid: "HardSigmoid",
    F.sigmoid: "Sigmoid",
    F.softmax: "Softmax",
    F.tanh: "Tanh",
    F.dropout: "Dropout",
    F.dropout1d: "Dropout",
    F.dropout2d: "Dropout",
    F.dropout3d: "Dropout",
    F.pixel_shuffle: "Reshape",
    F.pixel_unshuffle: "Reshape",
}
"""Functions and their kinds."""

NOT_NEGATIVE = frozenset({"Relu", "Sigmoid", "HardSigmoid", "Softmax"})
"""Kinds whose results are never negative, whatever they read."""

KEEPS_SIGN = frozenset(
    {
        "Add",
        "Mul",
        "Concat",
        "AveragePool",
        "GlobalAveragePool",
        "Resize",
        "ReduceMean",
        "ReduceSum",
    }
)
"""Kinds whose results are not negative if what they read is not (Resize: except bicubic)."""


def module_kind(module: nn.Module) -> str | None:
    """The kind of a module; None where it is none of them."""
    return next((MODULES[c] for c in type(module).__mro__ if c in MODULES), None)


def kind_of(node: fx.Node, modules: Mapping[str, nn.Module]) -> str | None:
    """The kind of `node`; None where it is none of them."""
    if node.op == "call_module":
        return module_kind(modules[str(node.target)])
    if node.op == "call_method":
        return METHODS.get(str(node.target))
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        return _getitem_kind(node, modules)
    if node.target is F.pad:
        return _pad_kind(node)
    return FUNCTIONS.get(node.target)  # type: ignore[arg-type]


def _getitem_kind(node: fx.Node, modules: Mapping[str, nn.Module]) -> str | None:
    """x[...] of a tensor selects; of the parts of a split tensor it names one of them."""
    source = node.args[0]
    if not isinstance(source, fx.Node):
        return None
    if kind_of(source, modules) == "Split":
        return "Identity"
    return "Slice" if source.meta.get(FLOAT, False) else None


def _pad_kind(node: fx.Node) -> str | None:
    """Only zeros, and values that are there already, lie on any grid."""
    given = dict(zip(("input", "pad", "mode", "value"), node.args, strict=False)) | node.kwargs
    zeros = given.get("mode", "constant") == "constant" and not given.get("value")
    return "Pad" if zeros or given.get("mode", "constant") != "constant" else None


def ends_not_negative(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether the result of `node` is never negative, whatever it reads."""
    kind = kind_of(node, modules)
    if kind in NOT_NEGATIVE:
        return True
    if node.op == "call_module":
        module = modules[str(node.target)]
        activation = getattr(module, "activation", None)
        return _starts_at_zero(module) or (
            isinstance(activation, nn.Module)
            and (module_kind(activation) in NOT_NEGATIVE or _starts_at_zero(activation))
        )
    if node.target is F.relu6:
        return True
    if kind == "Clip":
        names = ("input", "min_val" if node.target is F.hardtanh else "min")
        lowest = (dict(zip(names, node.args, strict=False)) | node.kwargs).get(names[1])
        return isinstance(lowest, int | float) and lowest >= 0
    return False


def _starts_at_zero(module: nn.Module) -> bool:
    return isinstance(module, nn.Hardtanh) and module.min_val >= 0
