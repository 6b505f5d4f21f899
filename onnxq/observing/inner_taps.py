"""Tensors inside the bodies of If and Loop made visible from outside.

Only outputs of the main graph can be fetched from a runtime. So an inner tensor becomes an output
of its body, and the node that holds the body gets one more output for it. Both branches of an If
must have the same outputs: the other one gives an empty tensor, a sign that this one did not run.
A Loop stacks the values of its iterations. Bodies within bodies are treated from the inside out.

An If within a Loop cannot be shown: the empty tensor of one iteration has not the shape of the
others, and they could not be stacked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import constant, new_node, variable
from onnxq.graph import Model
from onnxq.quant.qparams import Array
from onnxq.storage.importer import bodies

_STACKS = ("Loop", "Scan")

_Holder = tuple[gs.Node, gs.Graph]


@dataclass(frozen=True)
class Shown:
    """Where the values of an inner tensor are seen."""

    name: str
    """The tensor of the main graph."""
    stacked: int
    """How many axes of iterations come before its own."""

    def values(self, seen: Array) -> Array:
        """The values as one array of the tensor's own rank: iterations become a larger batch."""
        for _ in range(self.stacked):
            if seen.ndim > 2:
                seen = seen.reshape(-1, *seen.shape[2:])
        return seen


def expose(model: Model, names: Iterable[str]) -> dict[str, Shown]:
    """Make tensors of `model` (which is changed) visible; those that cannot be are left out."""
    homes = _homes(model)
    parents = {id(body): (node, body) for node in model.nodes() for body in bodies(node)}
    seen: dict[str, Shown] = {}
    for name in names:
        tensor, graph = homes[name]
        path = _path(model, graph, parents)
        if path is None:
            continue
        for holder, body in path:
            tensor = _lift(model, tensor, holder, body)
        seen[name] = Shown(tensor.name, sum(holder.op in _STACKS for holder, _ in path))
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


def _path(model: Model, graph: gs.Graph, parents: dict[int, _Holder]) -> list[_Holder] | None:
    """The nodes that hold `graph`, innermost first; None where one of them cannot show it."""
    path: list[_Holder] = []
    chosen = False
    while graph is not model.graph:
        if id(graph) not in parents:
            return None
        holder, _ = parents[id(graph)]
        stacks = holder.op in _STACKS and "scan_output_axes" not in holder.attrs
        if not (stacks and not chosen) and holder.op != "If":
            return None
        chosen = chosen or holder.op == "If"
        path.append(parents[id(graph)])
        graph = holder.owner
    return path


def _lift(model: Model, tensor: gs.Tensor, holder: gs.Node, body: gs.Graph) -> gs.Tensor:
    """One more output of `holder` with the values of `tensor`."""
    outer = variable(model, f"{tensor.name}.seen", like=None)
    inner = variable(model, f"{tensor.name}.shown", like=None)
    outer.dtype = inner.dtype = tensor.dtype
    new_node(model, "Identity", [tensor], [inner], name=f"{inner.name}.identity", graph=body)
    body.outputs.append(inner)
    if holder.op == "If":
        for other in bodies(holder):
            if other is not body:
                other.outputs.append(_nothing(model, f"{tensor.name}.nothing", tensor, other))
    holder.outputs.append(outer)
    return outer


def _nothing(model: Model, name: str, like: gs.Tensor, graph: gs.Graph) -> gs.Tensor:
    out = variable(model, name, like=None)
    out.dtype = like.dtype or np.float32
    empty = constant(model, name, np.zeros(0, out.dtype))
    new_node(model, "Identity", [empty], [out], name=f"{name}.identity", graph=graph)
    return out


__all__ = ["Shown", "expose"]
