"""Calls of layers in place of the functions that classes derived from them compute with.

A class derived from nn.Conv2d or nn.Linear that changes its code (padding as in TensorFlow, a cast)
is traced through, down to F.conv2d(x, self.weight, self.bias, ...). Batch norms fold into layers,
and checkpoints and settings know the layer, so the function becomes a call of a plain layer again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from torch_bridge.nn.adopt import adopt

_CONV = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_LAYERS: dict[Callable[..., Any], tuple[type[nn.Module], tuple[str, ...]]] = {
    F.linear: (nn.Linear, ("input", "weight", "bias")),
    torch.conv1d: (nn.Conv1d, _CONV),
    torch.conv2d: (nn.Conv2d, _CONV),
    torch.conv3d: (nn.Conv3d, _CONV),
}
_DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}


def restore_layers(graph_module: fx.GraphModule, model: nn.Module) -> None:
    """Replace such functions in the graph of `model`, in place."""
    graph = graph_module.graph
    read = Counter(str(n.target) for n in graph.nodes if n.op == "get_attr")
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _LAYERS:
            continue
        kind, names = _LAYERS[node.target]
        given = _DEFAULTS | {"bias": None} | dict(zip(names, node.args, strict=False))
        given |= node.kwargs
        path = _path_of_layer(given, model, kind)
        if path is None or read[f"{path}.weight"] > 1:
            continue
        layer = adopt(kind, model.get_submodule(path))
        vars(layer).pop("forward", None)
        if kind is not nn.Linear:
            _set_convolution(layer, given)
        graph_module.set_submodule(path, layer)
        with graph.inserting_before(node):
            call = graph.call_module(path, (given["input"],))
        call.meta.update(node.meta)
        node.replace_all_uses_with(call)
        graph.erase_node(node)
        for operand in (given["weight"], given["bias"]):
            if isinstance(operand, fx.Node) and not operand.users:
                graph.erase_node(operand)
    graph_module.recompile()


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
