"""The arguments of a model as nodes of a graph that is made from an example call.

An argument that is a tensor is a placeholder. One that contains tensors is taken apart by a
`Parts` module. The value of any other is part of the graph: a `Specialised` module checks it.
"""

from __future__ import annotations

import inspect
import operator
import re
from typing import Any

from torch import Tensor, fx, nn

from torch_bridge.capture.argument_checks import Parts, Required, Specialised
from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.capture.flat_call import leaves, unique
from torch_bridge.capture.mode_differences import OWNER

_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}
_LITERALS = (type(None), bool, int, float, str)


class ArgumentNodes:
    """The placeholders of a graph, and the modules that check what they are called with.

    Attributes:
        tensors: a node for each tensor of the call, in the order of `leaves`.
        names: a name for each of them, which is an identifier.
        modules: modules that the graph calls, by name.
    """

    def __init__(self, graph: fx.Graph, call: ExampleCall) -> None:
        self.graph = graph
        self.tensors: list[fx.Node] = []
        self.modules: dict[str, nn.Module] = {}
        paths = [path for path, _ in leaves(call.given)]
        self.names = unique([re.sub(r"\W", "_", "_".join(path)) for path in paths])
        defaults = False
        made = []
        for parameter in call.signature.parameters.values():
            placeholder, required = _placeholder(graph, parameter, defaults)
            defaults = defaults or bool(placeholder.args)
            made.append((parameter, placeholder, required))
        for parameter, placeholder, required in made:
            value = call.given.get(parameter.name, _absent(parameter))
            if required:
                placeholder = self._call(Required(parameter.name), placeholder)
            self._read(parameter.name, placeholder, value)

    def _read(self, name: str, node: fx.Node, value: Any) -> None:
        if isinstance(value, Tensor):
            self.tensors.append(node)
        elif count := sum(1 for _ in leaves(value)):
            parts = self._call(Parts(name, value), node)
            for index in range(count):
                self.tensors.append(self.graph.call_function(operator.getitem, (parts, index)))
        else:
            self._call(Specialised(name, value), node)

    def _call(self, module: Parts | Required | Specialised, node: fx.Node) -> fx.Node:
        name = f"{module.argument}_{type(module).__name__.lower()}"
        self.modules[name] = module
        made = self.graph.call_module(name, (node,))
        made.meta[OWNER] = ""
        return made


def _placeholder(
    graph: fx.Graph, parameter: inspect.Parameter, after_defaults: bool
) -> tuple[fx.Node, bool]:
    """The placeholder, and whether a missing argument has to be refused by a check.

    Keyword-only arguments without a default may follow others with one; FX has no such arguments.
    """
    name = _STARS.get(parameter.kind, "") + parameter.name
    if parameter.kind in _STARS:
        return graph.create_node("placeholder", name), False
    if parameter.default is parameter.empty:
        args = (None,) if after_defaults else ()
        return graph.create_node("placeholder", name, args), after_defaults
    default = parameter.default if isinstance(parameter.default, _LITERALS) else None
    return graph.create_node("placeholder", name, (default,)), False


def _absent(parameter: inspect.Parameter) -> Any:
    """The value of an argument that is not given."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return ()
    if parameter.kind is parameter.VAR_KEYWORD:
        return {}
    # Another default cannot be written into the code of a graph, which has None instead.
    return parameter.default if isinstance(parameter.default, _LITERALS) else None
