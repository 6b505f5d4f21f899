"""Calls of layers in place of the functions that classes derived from them compute with.

A class derived from nn.Conv2d, nn.Linear or a batch norm that changes its code (padding as in
TensorFlow, a cast, an activation function) is traced through, down to F.conv2d(x, self.weight,
self.bias, ...). Batch norms fold into layers, and checkpoints and settings know the layer, so the
function becomes a call of a plain layer again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from torch_bridge.capture.mode_differences import FLAG
from torch_bridge.nn.adopt import adopt

_CONV = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_LAYERS: dict[Callable[..., Any], tuple[type[nn.Module], tuple[str, ...]]] = {
    F.linear: (nn.Linear, ("input", "weight", "bias")),
    torch.conv1d: (nn.Conv1d, _CONV),
    torch.conv2d: (nn.Conv2d, _CONV),
    torch.conv3d: (nn.Conv3d, _CONV),
}
_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}


def restore_layers(graph_module: fx.GraphModule, model: nn.Module) -> None:
    """Replace such functions in the graph of `model`, in place."""
    graph = graph_module.graph
    read = Counter(str(n.target) for n in graph.nodes if n.op == "get_attr")
    for node in list(graph.nodes):
        if node.target is F.batch_norm:
            _restore_norm(graph_module, model, node, read)
        if node.op != "call_function" or node.target not in _LAYERS:
            continue
        kind, names = _LAYERS[node.target]
        given = _DEFAULTS | {"bias": None} | dict(zip(names, node.args, strict=False))
        given |= node.kwargs
        path = _path_of_layer(given, model, kind)
        if path is None or read[f"{path}.weight"] > 1:
            continue
        layer = adopt(kind, model.get_submodule(path))
        if kind is not nn.Linear:
            _set_convolution(layer, given)
        _call_instead(graph_module, node, path, layer, given["input"])
    graph_module.recompile()


def _restore_norm(
    graph_module: fx.GraphModule, model: nn.Module, node: fx.Node, read: Counter[str]
) -> None:
    """The same for a batch norm whose statistics follow the mode."""
    given: dict[str, Any] = (
        dict.fromkeys(_NORM) | dict(zip(_NORM, node.args, strict=False)) | node.kwargs
    )
    mean, follows = given["running_mean"], given["training"]
    if not isinstance(mean, fx.Node) or mean.op != "get_attr" or not _is_flag(follows):
        return
    path, _, name = str(mean.target).rpartition(".")
    if not path or name != "running_mean" or read[str(mean.target)] > 1:
        return
    module = model.get_submodule(path)
    kind = next((kind for kind in _NORMS if isinstance(module, kind)), None)
    own = all(_is_own(given[name], path, module, name) for name in ("weight", "bias"))
    if kind is not None and own and getattr(module, "momentum", None) is not None:
        _call_instead(graph_module, node, path, adopt(kind, module), given["input"])


def _is_flag(value: Any) -> bool:
    """Whether `value` is True in training and False in evaluation."""
    return isinstance(value, fx.Node) and str(value.target).rpartition(".")[2] == FLAG


def _is_own(value: Any, path: str, module: nn.Module, name: str) -> bool:
    if getattr(module, name, None) is None:
        return value is None
    return isinstance(value, fx.Node) and value.target == f"{path}.{name}"


def _call_instead(
    graph_module: fx.GraphModule, node: fx.Node, path: str, layer: nn.Module, x: fx.Node
) -> None:
    graph = graph_module.graph
    read = [n for n in node.all_input_nodes if n is not x]
    vars(layer).pop("forward", None)
    # Modules inside of it (an activation function) are those that the graph calls.
    layer._modules = dict(graph_module.get_submodule(path)._modules)
    graph_module.set_submodule(path, layer)
    with graph.inserting_before(node):
        call = graph.call_module(path, (x,))
    call.meta.update(node.meta)
    node.replace_all_uses_with(call)
    graph.erase_node(node)
    for operand in read:
        if not operand.users:
            graph.erase_node(operand)


def _path_of_layer(given: dict[str, Any], model: nn.Module, kind: type[nn.Module]) -> str | None:
    """The layer whose own parameters a function multiplies with and adds."""
    weight, bias = given["weight"], given["bias"]
    if not isinstance(weight, fx.Node) or weight.op != "get_attr":
        return None
    path, _, name = str(weight.target).rpartition(".")
    if not path or name != "weight":
        return None
    module = model.get_submodule(path)
    if not isinstance(module, kind) or "weight" not in dict(module.named_parameters(recurse=False)):
        return None
    if getattr(module, "bias", None) is None:
        return path if bias is None else None
    own = isinstance(bias, fx.Node) and bias.op == "get_attr" and bias.target == f"{path}.bias"
    return path if own else None


def _set_convolution(layer: nn.Module, given: dict[str, Any]) -> None:
    """Let a convolution compute with the numbers of this call."""
    rank = layer.get_parameter("weight").dim() - 2
    for name in ("stride", "padding", "dilation"):
        value = given[name]
        if not isinstance(value, str):
            numbers = (value,) * rank if isinstance(value, int) else tuple(value)
            value = numbers * rank if len(numbers) == 1 else numbers
        setattr(layer, name, value)
    layer.groups = given["groups"]
    layer.padding_mode = "zeros"  # type: ignore[assignment]
