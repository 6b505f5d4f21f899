"""The nodes of a graph whose values are float tensors: only those can be quantized.

A graph also computes with sizes, indices, masks and tuples; a run of the example tells them apart.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.state import evaluating

FLOAT = "onnxq_float"
"""Key in a node's meta: whether its value is a float tensor."""
SHAPE = "onnxq_shape"
"""Key in a node's meta: the shape of its value in the example, if that is a tensor."""


def mark_values(graph_module: fx.GraphModule, call: ExampleCall) -> None:
    """Run the graph once, in eval mode, and mark every node."""
    with evaluating(graph_module), torch.no_grad():
        _Marker(graph_module, call).run(enable_io_processing=False)


class _Marker(fx.Interpreter):
    """Runs a graph and marks its nodes."""

    def __init__(self, graph_module: fx.GraphModule, call: ExampleCall) -> None:
        super().__init__(graph_module)
        self.values = _placeholder_values(graph_module, call)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        return next(self.values)

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        n.meta[FLOAT] = isinstance(value, Tensor) and value.is_floating_point()
        if isinstance(value, Tensor):
            n.meta[SHAPE] = tuple(value.shape)
        return value


def _placeholder_values(graph_module: fx.GraphModule, call: ExampleCall) -> Iterator[Any]:
    bound = inspect.signature(graph_module.forward).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    names = [str(n.target).lstrip("*") for n in graph_module.graph.nodes if n.op == "placeholder"]
    if all(name in bound.arguments for name in names):
        return iter([bound.arguments[name] for name in names])
    # Lists and dicts of tensors were taken apart when the model was traced.
    return iter(graph_module.graph.process_inputs(*bound.arguments.values()))


def is_float(node: fx.Node) -> bool:
    """Whether the value of `node` is a float tensor; nodes made after the run count as such."""
    return bool(node.meta.get(FLOAT, True))
