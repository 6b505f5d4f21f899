"""The op kind of `onnxq.operators.placement` that each node of an FX graph has.

In-place and method forms have the kind of the function; modules have that of their class
(`torch_bridge.nn.module_kinds`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from onnxq.errors import OptionError
from onnxq.operators.placement import add_op_kind, is_op_kind
from onnxq.operators.traits import NEVER_NEGATIVE
from torch_bridge.capture.value_types import FLOAT, PASSES_ON
from torch_bridge.insertion.product_functions import dropped
from torch_bridge.nn.module_kinds import MODULES, class_kind, module_kind

__all__ = [
    "FUNCTIONS",
    "METHODS",
    "MODULES",
    "class_kind",
    "ends_not_negative",
    "kind_of",
    "module_kind",
    "register_op_kind",
]

_METHOD_NAMES: dict[str, str] = {
    "Add": "add add_",
    "Sub": "sub sub_ subtract",
    "Mul": "mul mul_ multiply",
    "Div": "div div_ divide true_divide",
    "MatMul": "matmul bmm mm",
    "Concat": "cat concat concatenate",
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "Max": "maximum",
    "Abs": "abs abs_",
    "Exp": "exp exp_",
    "Relu": "relu relu_",
    "Clip": "clamp clamp_ clip",
    "Sigmoid": "sigmoid sigmoid_",
    "Softmax": "softmax",
    "Tanh": "tanh tanh_",
    "Flatten": "flatten ravel",
    "Reshape": "reshape view unflatten view_as reshape_as",
    "Transpose": "permute transpose swapaxes movedim t",
    "Squeeze": "squeeze",
    "Unsqueeze": "unsqueeze",
    "Expand": "expand expand_as broadcast_to",
    "Tile": "tile repeat",
    "Split": "chunk split unbind tensor_split",
    "Slice": "narrow select",
    "Gather": "index_select",
    "GatherElements": "gather",
    "Identity": "contiguous clone detach float to type_as",
}
"""Names that a function of torch and a method of tensors have in common."""

METHODS: dict[str, str] = {
    name: kind for kind, names in _METHOD_NAMES.items() for name in names.split()
}
"""Methods of tensors and their kinds."""

_BY_MODULE = {kind.__name__.lower(): name for kind, name in MODULES.items()}
_OF_MODULES: dict[Callable[..., Any], str] = {
    getattr(F, name): _BY_MODULE[name.replace("_", "")]
    for name in dir(F)
    if name.replace("_", "") in _BY_MODULE and not name.startswith("_") and name[-1] != "_"
}
"""Functions of torch.nn.functional with the name of a module: avg_pool2d and AvgPool2d."""

_BUILTIN: dict[Callable[..., Any], str] = {
    getattr(torch, function.__name__): kind
    for function, kind in _OF_MODULES.items()
    if function.__name__ != "embedding"  # takes its weight first
    and isinstance(getattr(torch, function.__name__, None), BuiltinFunctionType)
}
"""The operators that those functions call: torch.layer_norm."""

FUNCTIONS: dict[Callable[..., Any], str] = {
    **{
        getattr(torch, name): kind
        for name, kind in METHODS.items()
        if callable(getattr(torch, name, None)) and not isinstance(getattr(torch, name), type)
    },
    **_BUILTIN,
    **_OF_MODULES,
    F.batch_norm: "BatchNormalization",
    F.interpolate: "Resize",
    dropped: "Dropout",
    **dict.fromkeys((operator.add, operator.iadd), "Add"),
    **dict.fromkeys((operator.sub, operator.isub), "Sub"),
    **dict.fromkeys((operator.mul, operator.imul), "Mul"),
    **dict.fromkeys((operator.truediv, operator.itruediv), "Div"),
    **dict.fromkeys((operator.matmul, torch.einsum), "MatMul"),
    **dict.fromkeys((torch.max_pool1d, torch.max_pool2d, torch.max_pool3d), "MaxPool"),
}
"""Functions and their kinds."""


def register_op_kind(
    what: type[nn.Module] | Callable[..., Any] | str, kind: str, *, replace: bool = False
) -> None:
    """Say which kind of operator a class of modules, a function or a method of tensors is.

    Backends decide by kinds what is quantized. A kind is the name of an ONNX operator; one that
    backends do not speak of yet becomes known by this.
    """
    if isinstance(what, type) and issubclass(what, nn.Module):
        known: dict[Any, str] = MODULES
    elif isinstance(what, str) and callable(getattr(torch.Tensor, what, None)):
        known = METHODS
    elif callable(what) and not isinstance(what, type | nn.Module):
        known = FUNCTIONS
    else:
        raise OptionError(
            f"{what!r} has no op kind",
            fix="give a class derived from torch.nn.Module, a function, or a method's name",
        )
    before = known.get(what, kind)
    if before != kind and not replace:
        raise OptionError(
            f"{getattr(what, '__name__', what)} has the op kind '{before}' already, not '{kind}'",
            fix="pass replace=True to change it",
        )
    if not is_op_kind(kind):
        add_op_kind(kind)
    known[what] = kind


def kind_of(node: fx.Node, modules: Mapping[str, nn.Module]) -> str | None:
    """The kind of `node`; None if it has none.

    What passes its input on in evaluation, such as stochastic depth, is a Dropout.
    """
    return _own_kind(node, modules) or ("Dropout" if node.meta.get(PASSES_ON) else None)


def _own_kind(node: fx.Node, modules: Mapping[str, nn.Module]) -> str | None:
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
    """Slice for x[...] of a tensor, Identity for one of the parts of a split tensor."""
    source = node.args[0]
    if not isinstance(source, fx.Node):
        return None
    if kind_of(source, modules) == "Split":
        return "Identity"
    return "Slice" if source.meta.get(FLOAT, False) else None


def _pad_kind(node: fx.Node) -> str | None:
    """Pad, if the padding lies on every grid: zeros, or values of the tensor itself."""
    given = dict(zip(("input", "pad", "mode", "value"), node.args, strict=False)) | node.kwargs
    zeros = given.get("mode", "constant") == "constant" and not given.get("value")
    return "Pad" if zeros or given.get("mode", "constant") != "constant" else None


def ends_not_negative(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether the result of `node` is never negative, whatever it reads."""
    kind = kind_of(node, modules)
    if kind in NEVER_NEGATIVE:
        return True
    if node.op == "call_module":
        module = modules[str(node.target)]
        activation = getattr(module, "activation", None)
        return _starts_at_zero(module) or (
            isinstance(activation, nn.Module)
            and (module_kind(activation) in NEVER_NEGATIVE or _starts_at_zero(activation))
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
