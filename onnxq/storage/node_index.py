"""The nodes of one graph by operator.

Most passes look for a few operators, and most graphs do not contain them. Walking over all nodes
each time would cost more than the passes themselves, since a large graph exceeds the caches of a
CPU.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_graphsurgeon as gs

BODY_OPS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""The operators of ONNX with graphs in their attributes; other domains may have some too."""


class NodeIndex:
    """The positions of operators in a list of nodes, to which nodes may be appended.

    Code that deletes from the list or changes an operator must call `forget`.
    """

    __slots__ = ("_holders", "_known", "_places")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Rebuild the index at the next query."""
        self._places: dict[str, list[int]] = {}
        self._holders: list[int] = []
        self._known = 0

    def find(self, graph: gs.Graph, ops: Collection[str]) -> list[gs.Node]:
        """The nodes with one of these operators, of any domain, in the order of the list."""
        nodes = self._updated(graph)
        found = [self._places[op] for op in ops if op in self._places]
        places = found[0] if len(found) == 1 else sorted(i for each in found for i in each)
        return [nodes[i] for i in places]

    def holders(self, graph: gs.Graph) -> list[gs.Node]:
        """The nodes that may have bodies: nearly always few or none."""
        nodes = self._updated(graph)
        return [nodes[i] for i in self._holders]

    def _updated(self, graph: gs.Graph) -> list[gs.Node]:
        """The nodes of `graph`, all of which are now indexed."""
        nodes: list[gs.Node] = graph.nodes
        if len(nodes) < self._known:
            self.forget()
        places = self._places
        for i in range(self._known, len(nodes)):
            node = nodes[i]
            op = node.op
            try:
                places[op].append(i)
            except KeyError:
                places[op] = [i]
            if node.domain or op in BODY_OPS:
                self._holders.append(i)
            if getattr(node, "owner", None) is None:  # made by graphsurgeon's own constructor
                node.owner = graph
        self._known = len(nodes)
        return nodes
