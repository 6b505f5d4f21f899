"""The nodes of a graph whose values are float tensors: only those can be quantized.

A graph also computes with sizes, indices, masks and tuples; a run of the example tells them apart.
Of each float tensor the run keeps some values, for comparing with later.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from torch import Tensor, fx

from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.state import evaluating

FLOAT = "onnxq_float"
"""Key in a node's meta: whether its value is a float tensor."""
SHAPE = "onnxq_shape"
"""Key in a node's meta: the shape of its value in the example, if that is a tensor."""
PASSES_ON = "onnxq_passes_on"
"""Key in a node's meta: whether it returns its first argument unchanged in evaluation."""
MADE_ZERO = "onnxq_made_zero"
"""Key in a node's meta: whether its value is zero in the example though its inputs are not.

So is the result of a layer that starts as zero, and all that is computed from it alone.
"""
SAMPLE = "onnxq_sample"
"""Key in a node's meta: some of the values of a float tensor in the example."""
_SAMPLED = 4096


def mark_values(graph_module: fx.GraphModule, call: ExampleCall) -> None:
    """Run the graph once, in eval mode, and mark every node."""
    _Marker(graph_module, call).run_example()


class ExampleRun(fx.Interpreter):
    """Runs a graph on the example, in eval mode, and leaves inputs and buffers as they were."""

    def __init__(self, graph_module: fx.GraphModule, call: ExampleCall) -> None:
        super().__init__(graph_module)
        self.graph_module, self.call = graph_module, call
        self.values = _placeholder_values(graph_module, call)

    def run_example(self) -> None:
        """Run every node, in order."""
        with self.call.repeatable(self.graph_module), evaluating(self.graph_module):
            self.run(enable_io_processing=False)

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The next argument of the example."""
        return next(self.values)


class _Marker(ExampleRun):
    """Marks the nodes."""

    def run_node(self, n: fx.Node) -> Any:
        first = self.env.get(n.args[0]) if n.args and isinstance(n.args[0], fx.Node) else None
        version = first._version if isinstance(first, Tensor) else None
        value = super().run_node(n)
        n.meta[MADE_ZERO] = _is_zero(value) and self._starts_as_zero(n)
        n.meta[PASSES_ON] = (
            value is first and isinstance(value, Tensor) and value._version == version
        )
        n.meta[FLOAT] = isinstance(value, Tensor) and value.is_floating_point()
        if isinstance(value, Tensor):
            n.meta[SHAPE] = tuple(value.shape)
        if n.meta[FLOAT] and not value.is_meta:
            n.meta[SAMPLE] = sample(value)
        return value

    def _starts_as_zero(self, n: fx.Node) -> bool:
        read = [each for each in n.all_input_nodes if isinstance(self.env.get(each), Tensor)]
        made = any(e.meta[MADE_ZERO] or not _is_zero(self.env[e]) for e in read)
        return made or n.op == "get_attr"


def sample(value: Tensor) -> Tensor:
    """Some values, evenly spread: as good as all of them to see a layer that computes otherwise."""
    step = value.numel() // _SAMPLED | 1  # odd: sizes of channels are mostly even
    return value.detach().reshape(-1)[::step].to("cpu", copy=True)


def _is_zero(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and not value.any()


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
