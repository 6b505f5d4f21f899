"""Gives the functions of a traced graph back to the modules whose code called them.

In a traced model `x + y` of 'layer1.0' is a line in the forward of the whole model, and exporters
would name it after that. `with_owners` makes a graph in which every such line is a call of a
small module, which exporters do name. Parameters, buffers and modules are those of the model.
"""

from __future__ import annotations

import copy
import operator
from typing import Any

from torch import fx, nn

from torch_bridge.capture.mode_differences import OWNER
from torch_bridge.nn.hooks import keep_hooks

_PREFIX = "onnxq_call_"


class OwnedCall(nn.Module):
    """One function or method call of a traced graph."""

    def __init__(self, call: fx.Node) -> None:
        super().__init__()
        self.target = call.target
        self.is_method = call.op == "call_method"
        self.owner: str = call.meta[OWNER]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        if self.is_method:
            return getattr(args[0], str(self.target))(*args[1:], **kwargs)
        return self.target(*args, **kwargs)  # type: ignore[operator]


def with_owners(model: nn.Module) -> nn.Module:
    """`model`, or a graph over its modules whose functions run inside an `OwnedCall`."""
    if not isinstance(model, fx.GraphModule):
        return model
    graph = copy.deepcopy(model.graph)
    calls: dict[str, OwnedCall] = {}
    for node in list(graph.nodes):
        if node.op in ("call_function", "call_method") and node.meta.get(OWNER):
            name = f"{_PREFIX}{len(calls)}"
            calls[name] = OwnedCall(node)
            node.op, node.target = "call_module", name
    if not calls:
        return model
    used = (str(n.target) for n in model.graph.nodes if n.op in ("call_module", "get_attr"))
    parts = {path: operator.attrgetter(path)(model) for path in used}
    made = fx.GraphModule({**parts, **calls}, graph, type(model).__name__)
    made.training = model.training  # not train(), which would reach into the model's modules
    keep_hooks(model, made)
    return made


def owner_of(model: nn.Module, path: str) -> str:
    """The path of a module, or that of the owner if it is a call."""
    if not path.startswith(_PREFIX):
        return path
    call = model.get_submodule(path)
    assert isinstance(call, OwnedCall)
    return call.owner
