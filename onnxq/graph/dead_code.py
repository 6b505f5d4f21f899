"""Removes nodes from a graph, and with them everything that is no longer used.

Links are cut by identity: graphsurgeon's own removal compares by value and may cut the wrong edge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_graphsurgeon as gs

from onnxq.graph.links import cut
from onnxq.storage.exporter import is_read, kept_constants, live_nodes
from onnxq.storage.importer import bodies

if TYPE_CHECKING:
    from onnxq.graph import Model


def detach(node: gs.Node) -> None:
    """Take a node out of the graph; the next `sweep` drops its list entry."""
    for tensor in node.inputs:
        cut(tensor.outputs, node)
    for tensor in node.outputs:
        cut(tensor.inputs, node)
    list.clear(node.inputs)
    list.clear(node.outputs)
    node.removed = True
    if getattr(node, "owner", None) is not None:
        node.owner.record.has_removed = True


def sweep(model: Model) -> int:
    """Drop removed nodes and nodes whose results are no longer read; returns their number."""
    graphs = list(model.graphs())
    suspects = [node for graph in graphs for node in graph.nodes if _is_suspect(node)]
    orphans = [b for n in suspects if getattr(n, "removed", False) for b in bodies(n)]
    dropped = 0
    while suspects or orphans:
        while suspects:
            node = suspects.pop()
            if _is_dead(node, model):
                suspects.extend(maker for t in node.inputs for maker in t.inputs)
                orphans.extend(bodies(node))
                detach(node)
                dropped += 1
        if orphans:
            # Nodes in the bodies of a removed node no longer read outer tensors, unless another
            # node has taken over the body.
            held = {id(graph) for graph in model.graphs()}
            gone = [b for b in orphans if id(b) not in held]
            inner = [n for b in gone for n in live_nodes(b) if n.owner is b]
            orphans = [b for n in inner for b in bodies(n)]
            for node in inner:
                suspects.extend(maker for t in node.inputs for maker in t.inputs)
                detach(node)
    for graph in graphs:
        if graph.record.has_removed:
            graph.nodes[:] = _heirs_in_place(graph.nodes)
            graph.record.index.forget()
            graph.record.has_removed = False
            _forget_constants(graph)
            model.forget_names()
    return dropped


def _heirs_in_place(nodes: list[gs.Node]) -> list[gs.Node]:
    """The nodes that are left; those that replace a removed one take its place in the list.

    So a sorted list stays sorted.
    """
    left: list[gs.Node] = []
    placed: set[int] = set()
    for node in nodes:
        if not getattr(node, "removed", False):
            if id(node) not in placed:
                left.append(node)
            continue
        pending = list(getattr(node, "heirs", ()))
        while pending:
            heir = pending.pop(0)
            if getattr(heir, "removed", False):
                pending[:0] = getattr(heir, "heirs", ())
            elif id(heir) not in placed:
                placed.add(id(heir))
                left.append(heir)
    return left


def _is_suspect(node: gs.Node) -> bool:
    """Whether `node` seems to have no consumers, at a quick look."""
    for tensor in node.outputs:
        links = tensor.outputs
        if links and not getattr(links[0], "removed", False):
            return False
    return True


def _is_dead(node: gs.Node, model: Model) -> bool:
    for tensor in node.outputs:
        if is_read(tensor) or model.is_output(tensor):
            return False
    return bool(node.outputs) and not getattr(node, "unread_at_load", False)


def _forget_constants(graph: gs.Graph) -> None:
    """Drop constants that are no longer read, and the type information about them."""
    record = graph.record
    kept = kept_constants(graph)
    gone = {c.name for c in record.constants} - {c.name for c in kept}
    if not gone:
        return
    for constant in record.constants:
        if constant.name in gone:
            constant.owner = None
    record.constants[:] = kept
    record.stray_infos[:] = [i for i in record.stray_infos if i.name not in gone]


__all__ = ["detach", "sweep"]
