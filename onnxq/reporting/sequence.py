"""The nodes of a model, each after those it reads from: passes append new ones at the end."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.graph import Model
from onnxq.storage.importer import bodies


def in_sequence(model: Model) -> list[gs.Node]:
    """All nodes; where their order is free, as the model has them."""
    found: list[gs.Node] = []
    done: set[int] = set()
    for root in model.nodes():
        stack = [root]
        while stack:  # not by recursion: chains may be longer than Python's stack
            node = stack[-1]
            before = [] if id(node) in done else [n for n in _makers(node) if id(n) not in done]
            if before:
                stack.extend(reversed(before))
                continue
            stack.pop()
            if id(node) not in done:
                done.add(id(node))
                found.append(node)
    return found


def _makers(node: gs.Node) -> list[gs.Node]:
    """The nodes whose results a node reads, also in its bodies."""
    outside = (t for body in bodies(node) for inner in body.nodes for t in inner.inputs)
    makers = {id(n): n for t in (*node.inputs, *outside) for n in t.inputs}
    return [maker for maker in makers.values() if maker.owner is node.owner and maker is not node]


__all__ = ["in_sequence"]
