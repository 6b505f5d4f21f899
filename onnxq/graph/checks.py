"""Checks that names can be links: one producer each, none missing, no cycle."""

from __future__ import annotations

from collections import ChainMap

import onnx_graphsurgeon as gs

from onnxq.errors import InvalidModelError
from onnxq.storage.exporter import describe, live_nodes, sorted_nodes
from onnxq.storage.importer import bodies, holders

Names = dict[str, gs.Tensor]


def check_graph(graph: gs.Graph) -> Names:
    """The tensors of a graph by name, those of its bodies left out.

    Raises InvalidModelError on duplicate names, dangling inputs and cycles, bodies included.
    """
    return _check(graph, ChainMap(), {})


def _check(graph: gs.Graph, outer: ChainMap[str, gs.Tensor], made: Names) -> Names:
    """Check one graph; names are links in ONNX, so each must mean one tensor wherever it is read.

    `outer` contains the names of the enclosing graphs, `made` those of constants made by passes.
    """
    fix = "the file is not a valid ONNX graph: export it again"
    names: Names = {}

    def is_known(tensor: gs.Tensor) -> bool:
        meant = names.get(tensor.name)
        if meant is None and outer:
            meant = outer.get(tensor.name)
        if meant is None and isinstance(tensor, gs.Constant):
            meant = made.setdefault(tensor.name, tensor)
        if meant is not None and meant is not tensor:
            raise InvalidModelError(f"two tensors are named '{tensor.name}'", fix=fix)
        return meant is not None

    for tensor in graph.inputs:
        if tensor.name in names:
            raise InvalidModelError(f"two graph inputs are named '{tensor.name}'", fix=fix)
        names[tensor.name] = tensor
    known, declare = names.get, names.setdefault
    for tensor in graph.record.constants:
        if declare(tensor.name, tensor) is not tensor:
            raise InvalidModelError(f"two tensors are named '{tensor.name}'", fix=fix)
    for tensors in (graph.inputs, graph.record.constants):
        for tensor in tensors:
            if tensor.inputs:
                raise InvalidModelError(
                    f"tensor '{tensor.name}' is a graph input or initializer and also an output "
                    f"of node {describe(tensor.inputs[0])}",
                    fix=fix,
                )
    strangers: list[tuple[gs.Node, gs.Tensor]] = []  # read before they are made, or not made here
    for node in live_nodes(graph):
        for tensor in node.inputs:
            if known(tensor.name) is not tensor and tensor.name:
                strangers.append((node, tensor))  # noqa: PERF401 - a call less
        for tensor in node.outputs:
            name = tensor.name
            if name and (declare(name, tensor) is not tensor or len(tensor.inputs) > 1):
                raise InvalidModelError(f"tensor '{name}' has two producers", fix=fix)
    for node, tensor in strangers:
        if not is_known(tensor):
            raise InvalidModelError(
                f"node {describe(node)} reads '{tensor.name}', which has no producer",
                fix=f"{fix}, or add '{tensor.name}' as a graph input",
            )
    inner = [body for node in holders(graph) for body in bodies(node)]
    if inner or any(tensor.inputs for _, tensor in strangers):
        sorted_nodes(graph)  # finds cycles; a graph in order has none
    for body in inner:
        _check(body, outer.new_child(names), made)
    for tensor in graph.outputs:
        if not is_known(tensor):
            raise InvalidModelError(f"graph output '{tensor.name}' has no producer", fix=fix)
    return names
