"""Tensors inside the bodies of If and Loop made visible from outside.

Only outputs of the main graph can be fetched from a runtime. So an inner tensor becomes an output
of its body, and the node that holds the body gets one more output for it. Both branches of an If
must have the same outputs: the other one gives an empty tensor, a sign that this one did not run.
A Loop stacks the values of its iterations. Bodies within bodies are treated from the inside out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import constant, new_node, variable
from onnxq.graph import Model
from onnxq.storage.importer import bodies

_STACKS = ("Loop", "Scan")


def expose(model: Model, names: Iterable[str]) -> dict[str, str]:
    """Make tensors of `model` (which is changed) visible; their names in the main graph."""
    homes = _homes(model)
    seen: dict[str, str] = {}
    for name in names:
        tensor, graph = homes[name]
        path = _path(model, graph)
        if path is None:
            continue
        for holder, body in reversed(path):
            tensor = _lift(model, tensor, holder, body)
        seen[name] = tensor.name
    return seen


def _homes(model: Model) -> dict[str, tuple[gs.Tensor, gs.Graph]]:
    found: dict[str, tuple[gs.Tensor, gs.Graph]] = {}
    for graph in model.graphs():
        for tensor in graph.inputs:
            found.setdefault(tensor.name, (tensor, graph))
    for node in model.nodes():
        for tensor in node.outputs:
            found.setdefault(tensor.name, (tensor, node.owner))
    return found


def _path(model: Model, graph: gs.Graph) -> list[tuple[gs.Node, gs.Graph]] | None:
    """The nodes that hold `graph`, outermost first; None where one of them cannot show it."""
    parents = {id(body): (n, body) for n in model.nodes() for body in bodies(n)}
    path: list[tuple[gs.Node, gs.Graph]] = []
    while graph is not model.graph:
        if id(graph) not in parents:
            return None
        path.insert(0, parents[id(graph)])
        holder = path[0][0]
        if holder.op != "If" and holder.op not in _STACKS:
            return None
        graph = holder.owner
    return path


def _lift(model: Model, tensor: gs.Tensor, holder: gs.Node, body: gs.Graph) -> gs.Tensor:
    """One more output of `holder` with the values of `tensor`."""
    outer = variable(model, f"{tensor.name}.seen", like=None)
    inner = variable(model, f"{tensor.name}.shown", like=None)
    new_node(model, "Identity", [tensor], [inner], name=f"{inner.name}.identity", graph=body)
    body.outputs.append(inner)
    if holder.op == "If":
        for other in bodies(holder):
            if other is not body:
                other.outputs.append(_nothing(model, f"{tensor.name}.nothing", other))
    holder.outputs.append(outer)
    return outer


def _nothing(model: Model, name: str, graph: gs.Graph) -> gs.Tensor:
    out = variable(model, name, like=None)
    empty = constant(model, name, np.zeros(0, np.float32))
    new_node(model, "Identity", [empty], [out], name=f"{name}.identity", graph=graph)
    return out


__all__ = ["expose"]
