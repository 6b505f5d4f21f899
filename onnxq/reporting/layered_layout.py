"""Positions for the nodes of a network: layers from top to bottom, folded into columns.

A network is a long chain with branches: drawn as one strip, 2,000 layers are a hundred times as
high as wide. So the strip is cut into columns that stand side by side, as text is in a newspaper,
and the whole network fits a screen.

Three steps, each linear in the number of edges:

1. rows: a node comes one row below the lowest of its producers (longest path). Producers that
   feed only deeper rows move down to just above their consumers.
2. order within a row: sweeps down and up sort each row by the average position of its neighbours.
3. places: a node stands below the average of its producers, as close as its neighbours allow.

General-purpose libraries draw finer pictures, but put an invisible node into every row that an edge
crosses. Skip connections over hundreds of rows then take minutes, or more memory than there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

Edge = tuple[int, int]
Place = tuple[float, float]

WIDTH, HEIGHT = 132.0, 30.0
"""Of a node."""
GAP_X, GAP_Y = 20.0, 22.0
COLUMN_GAP = 90.0
_SWEEPS = 4
_ASPECT = 1.3
"""The width of a picture that fits a screen, as a multiple of its height."""
_LEAST_ROWS = 24
"""A strip of so many rows is not cut: it fits a screen as it is."""


def layout(count: int, edges: Iterable[Edge]) -> list[Place]:
    """The centre of each of `count` nodes; they are numbered in the order of the graph.

    An edge leads from a node to one with a higher number; others are ignored.
    """
    forward = sorted({(a, b) for a, b in edges if 0 <= a < b < count})
    producers: list[list[int]] = [[] for _ in range(count)]
    consumers: list[list[int]] = [[] for _ in range(count)]
    for a, b in forward:
        producers[b].append(a)
        consumers[a].append(b)
    rows = _rows(producers, consumers)
    ordered = _ordered(rows, producers, consumers)
    across = _across(ordered, producers, consumers)
    return _folded(rows, ordered, across)


def _rows(producers: Sequence[Sequence[int]], consumers: Sequence[Sequence[int]]) -> list[int]:
    count = len(producers)
    rows = [0] * count
    for node in range(count):
        rows[node] = max((rows[p] + 1 for p in producers[node]), default=0)
    for node in reversed(range(count)):
        if consumers[node]:
            lowest = min(rows[c] for c in consumers[node]) - 1
            # A node on the longest path cannot move; one with producers would stretch an edge.
            if not producers[node] or len(consumers[node]) == 1:
                rows[node] = max(rows[node], lowest)
    return rows


def _ordered(
    rows: Sequence[int], producers: Sequence[Sequence[int]], consumers: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The nodes of each row from left to right."""
    ordered: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for node, number in enumerate(rows):
        ordered[number].append(node)
    at = [0.0] * len(rows)

    def place(row: list[int]) -> None:
        middle = (len(row) - 1) / 2
        for number, node in enumerate(row):
            at[node] = number - middle

    for row in ordered:
        place(row)
    for sweep in range(_SWEEPS):
        downward = sweep % 2 == 0
        neighbours = producers if downward else consumers
        for row in ordered if downward else reversed(ordered):
            if len(row) > 1:
                row.sort(key=lambda node: _average(at, neighbours[node], at[node]))
                place(row)
    return ordered


def _average(at: Sequence[float], nodes: Sequence[int], otherwise: float) -> float:
    return sum(at[n] for n in nodes) / len(nodes) if nodes else otherwise


def _across(
    ordered: Sequence[list[int]],
    producers: Sequence[Sequence[int]],
    consumers: Sequence[Sequence[int]],
) -> list[float]:
    """Where each node stands in its row, as a distance from the middle."""
    step = WIDTH + GAP_X
    across = [0.0] * sum(map(len, ordered))
    for row in ordered:
        wanted = [
            _average(across, producers[n], (i - (len(row) - 1) / 2) * step)
            for i, n in enumerate(row)
        ]
        for node, x in zip(row, _apart(wanted, step), strict=True):
            across[node] = x
    for row in reversed(ordered):
        wanted = [_average(across, [*producers[n], *consumers[n]], across[n]) for n in row]
        for node, x in zip(row, _apart(wanted, step), strict=True):
            across[node] = x
    return across


def _apart(wanted: Sequence[float], step: float) -> list[float]:
    """Positions in this order, at least `step` apart, as near to the wanted ones as can be.

    Neighbours that are too close become a block that stands at the average of what they want.
    """
    blocks: list[tuple[float, int]] = []  # sum of the wanted starts, number of nodes
    for number, x in enumerate(wanted):
        total, size = x - number * step, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / size:
            before, more = blocks.pop()
            total, size = total + before, size + more
        blocks.append((total, size))
    starts = [total / size for total, size in blocks for _ in range(size)]
    return [start + number * step for number, start in enumerate(starts)]


def _folded(
    rows: Sequence[int], ordered: Sequence[list[int]], across: Sequence[float]
) -> list[Place]:
    """The places of all nodes, with the strip cut into columns."""
    if not rows:
        return []
    height = HEIGHT + GAP_Y
    extents = [
        (min(across[n] for n in row) - WIDTH / 2, max(across[n] for n in row) + WIDTH / 2)
        for row in ordered
    ]
    per_column = _rows_per_column(extents, height)
    starts = [*range(0, len(ordered), per_column), len(ordered)]
    left, offsets = 0.0, [0.0] * len(ordered)
    for first, after in pairwise(starts):
        low = min(low for low, _ in extents[first:after])
        high = max(high for _, high in extents[first:after])
        offsets[first:after] = [left - low] * (after - first)
        left += high - low + COLUMN_GAP
    return [
        (across[node] + offsets[row], (row % per_column) * height) for node, row in enumerate(rows)
    ]


def _rows_per_column(extents: Sequence[tuple[float, float]], height: float) -> int:
    """How many rows a column has: so many that the picture is about as wide as a screen."""
    rows = len(extents)
    if rows <= _LEAST_ROWS:
        return rows
    width = sum(high - low for low, high in extents) / rows + COLUMN_GAP
    columns = max(1, round(math.sqrt(_ASPECT * rows * height / width)))
    return max(_LEAST_ROWS, -(-rows // columns))


__all__ = ["HEIGHT", "WIDTH", "Edge", "Place", "layout"]
