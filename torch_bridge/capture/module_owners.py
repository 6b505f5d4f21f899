"""Gives the functions of a traced graph back to the modules whose code called them.

In a traced model `x + y` of 'layer1.0' is a line in the forward of the whole model, and exporters
would name it after that. `with_owners` makes a graph in which every such line is a call of a
small module, which exporters do name. Parameters, buffers and modules are those of the model.
"""

from __future__ import annotations

import copy
import operator
from typing import Any

from torch import Tensor, fx, nn

from torch_bridge.capture.flat_call import unique
from torch_bridge.capture.mode_differences import OWNER
from torch_bridge.nn.hooks import keep_hooks

_PREFIX = "onnxq_call_"
_PARAMETRIZATIONS = ".parametrizations."


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
    weights = _computed_weights(model, graph)
    calls: dict[str, OwnedCall] = {}
    for node in list(graph.nodes):
        if node.op in ("call_function", "call_method") and node.meta.get(OWNER):
            name = f"{_PREFIX}{len(calls)}"
            calls[name] = OwnedCall(node)
            node.op, node.target = "call_module", name
    if not calls and not weights:
        return model
    used = {str(n.target) for n in graph.nodes if n.op in ("call_module", "get_attr")}
    kept = used - calls.keys() - weights.keys()
    parts = {path: operator.attrgetter(path)(model) for path in sorted(kept)}
    made = fx.GraphModule({**parts, **calls, **weights}, graph, type(model).__name__)
    made.training = model.training  # not train(), which would reach into the model's modules
    keep_hooks(model, made)
    return made


def _computed_weights(model: fx.GraphModule, graph: fx.Graph) -> dict[str, Tensor]:
    """Replace what `graph` computes by parametrizations with its values, and return them by path.

    A parametrization (spectral_norm, orthogonal) may be made of operators that ONNX lacks. Its
    result depends on parameters alone, so a file holds it as the weight that it is.
    """
    values: dict[fx.Node, Any] = {}
    run = fx.Interpreter(model)
    for node in graph.nodes:
        known = all(each in values for each in node.all_input_nodes)
        if node.op == "get_attr" or (known and _parametrized(node)):
            run.env = dict(values)
            values[node] = run.run_node(node)
    found: dict[str, Tensor] = {}
    for node in [n for n in values if n.op != "get_attr"]:
        if isinstance(values[node], Tensor) and any(user not in values for user in node.users):
            layer, _, rest = (_parametrized(node) or "").partition(_PARAMETRIZATIONS)
            path = unique([f"{layer}.{rest.partition('.')[0]}"], tuple(found))[0]
            found[path] = values[node].detach()
            with graph.inserting_before(node):
                held = graph.get_attr(path)
            held.meta = dict(node.meta)
            node.replace_all_uses_with(held)
    for node in reversed(values):
        if not node.users:
            graph.erase_node(node)
    return found


def _parametrized(node: fx.Node) -> str:
    """The path of the parametrization that made `node`; '' if none did."""
    path = str(node.target) if node.op == "call_module" else node.meta.get(OWNER, "")
    return path if _PARAMETRIZATIONS in path else ""


def owner_of(model: nn.Module, path: str) -> str:
    """The path of a module, or that of the owner if it is a call."""
    if not path.startswith(_PREFIX):
        return path
    call = model.get_submodule(path)
    assert isinstance(call, OwnedCall)
    return call.owner
