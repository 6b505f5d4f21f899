"""The nodes of a graph in an order they can run in."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator

import onnx

from onnxq.errors import InvalidModelError


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """The names a node reads, including those read in its bodies and names local to them."""
    yield from node.input
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            yield from (o.name for o in body.output)
            for inner in body.node:
                yield from reads(inner)


def ordered(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes, each after those it depends on; in file order if that is valid."""
    nodes = list(graph.node)
    producer = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [sorted({producer[n] for n in reads(node) if n in producer}) for node in nodes]
    if all(last < i for i, before in enumerate(needs) for last in before):
        return nodes
    try:
        order = list(graphlib.TopologicalSorter(dict(enumerate(needs))).static_order())
    except graphlib.CycleError as error:
        name = nodes[error.args[1][0]].name
        raise InvalidModelError(f"node '{name}' depends on its own output (cycle)") from error
    return [nodes[i] for i in order]
