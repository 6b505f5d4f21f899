"""The graph of a prepared model, with the other attributes that the model must have.

When it is copied or pickled, torch's GraphModule keeps only the modules that its graph uses; this
one also keeps attributes and methods, at any depth.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx, nn


@dataclass(frozen=True)
class Method:
    """A function to be bound to the module that holds it."""

    function: Callable[..., Any]


class QuantizedGraph(fx.GraphModule):
    """A GraphModule that keeps attributes."""

    def __init__(self, root: Any, graph: fx.Graph, class_name: str = "QuantizedGraph") -> None:
        for node in graph.nodes:
            node.type = None  # annotations may be strings, which pickled code cannot import
        super().__init__(root, graph, class_name)
        self.kept: dict[str, Any] = {}
        self._leave_out_of_checkpoints(root)

    def _leave_out_of_checkpoints(self, root: nn.Module) -> None:
        """Torch makes every tensor that a graph reads a buffer; those of `root` alone are saved."""
        saved = root.state_dict(keep_vars=True).keys()
        for path, module in self.named_modules():
            for name in module._buffers:
                if f"{path}.{name}".lstrip(".") not in saved:
                    module._non_persistent_buffers_set.add(name)

    def keep(self, path: str, value: Any) -> None:
        """Set the attribute at `path`, for copies too."""
        self.kept[path] = value
        owner, _, name = path.rpartition(".")
        try:
            target: nn.Module = self.get_submodule(owner) if owner else self
        except AttributeError:  # nothing below it is called, so the graph has no such module
            target = nn.Module().train(self.training)
            self.add_submodule(owner, target)
        if isinstance(value, Method):
            value = types.MethodType(value.function, target)
        setattr(target, name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedGraph:
        made = _empty(type(self).__name__)
        memo[id(self)] = made
        state = {k: v for k, v in self.__dict__.items() if not isinstance(v, fx.Graph)}
        made.__dict__.update(copy.deepcopy(state, memo))
        made.graph = copy.deepcopy(self.graph)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        bound = {p.rpartition(".")[2] for p, v in self.kept.items() if isinstance(v, Method)}
        made, (state, imports) = super().__reduce__()
        # A bound method would pickle the module it is bound to, in endless recursion.
        state = {k: v for k, v in state.items() if k not in bound}
        return _unpickled, (made, state, imports, type(self).__name__)


def _unpickled(
    make: Callable[..., fx.GraphModule], state: dict[str, Any], imports: str, name: str
) -> QuantizedGraph:
    """The model as it was, with its modules in the same order; torch's are in that of the graph.

    Checkpoints of optimizers identify parameters by their number.
    """
    made = _empty(name)
    made.__dict__.update(state)
    again = make(state, imports)
    made.graph = again.graph
    for name, value in again.named_buffers(recurse=False):
        if name not in made._buffers:  # torch runs the code: tensors that it makes are constants
            made.register_buffer(name, value, persistent=False)
    for path, value in made.kept.items():
        made.keep(path, value)
    return made


def _empty(name: str) -> QuantizedGraph:
    made = QuantizedGraph.__new__(QuantizedGraph)
    type(made).__name__ = name  # every graph module has a class of its own
    nn.Module.__init__(made)
    return made
