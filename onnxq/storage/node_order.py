"""The nodes of a graph in an order they can run in."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator

import onnx

from onnxq.errors import InvalidModelError


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """The names a node reads, including from within its bodies and names local to them."""
    yield from node.input
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            yield from (o.name for o in body.output)
            for inner in body.node:
                yield from reads(inner)


def ordered(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes, each after those it depends on; in file order if that is valid."""
    nodes = list(graph.node)
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [sorted({maker[n] for n in reads(node) if n in maker}) for node in nodes]
    if all(last < i for i, before in enumerate(needs) for last in before):
        return nodes
    try:
        order = list(graphlib.TopologicalSorter(dict(enumerate(needs))).static_order())
    except graphlib.CycleError as error:
        raise InvalidModelError(
            f"node {nodes[error.args[1][0]].name!r} depends on its own output (cycle)",
            fix="the file is not a valid ONNX graph: export it again",
        ) from error
    return [nodes[i] for i in order]
