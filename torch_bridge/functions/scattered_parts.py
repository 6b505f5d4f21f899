"""A tensor with another value for one part of it, where the part is given by a view.

Parts that are cut out between two positions are joined with what is around them, which every
target can compute. Any other view is applied to the numbers of the elements, which tells where the
values belong.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import fx


class _Cut(NamedTuple):
    """The positions `start` to `stop` along an axis; `single`: the axis is dropped."""

    axis: int
    start: Any
    stop: Any
    single: bool


def put(graph: fx.Graph, whole: fx.Node, view: fx.Node, value: fx.Node, rank: int) -> fx.Node:
    """The tensor `whole`, of that rank, with `value` where `view` reads it."""
    cuts = _cuts(graph, view, rank)
    if cuts is None:
        return _scattered(graph, whole, view, value)
    for cut in cuts:
        if cut.single:
            value = graph.call_method("unsqueeze", (value, cut.axis))
    parts = [whole]
    for cut in cuts[:-1]:
        parts.append(_between(graph, parts[-1], cut.axis, cut.start, cut.stop))
    for part, cut in zip(reversed(parts), reversed(cuts), strict=True):
        joined = [value]
        if cut.start is not None:
            joined.insert(0, _between(graph, part, cut.axis, None, cut.start))
        if cut.stop is not None:
            joined.append(_between(graph, part, cut.axis, cut.stop, None))
        value = graph.call_function(torch.cat, (joined, cut.axis)) if len(joined) > 1 else value
    return value


def _between(graph: fx.Graph, x: fx.Node, axis: int, start: Any, stop: Any) -> fx.Node:
    index = (*(slice(None),) * axis, slice(start, stop))
    return graph.call_function(operator.getitem, (x, index))


def _cuts(graph: fx.Graph, view: fx.Node, rank: int) -> list[_Cut] | None:
    """The cuts by axis, in order; None if `view` does something else."""
    name = getattr(view.target, "__name__", view.target)
    if view.target is operator.getitem:
        given = view.args[1]
        entries = _full(given if isinstance(given, tuple) else (given,), rank)
    elif name == "select" and len(view.args) == 3 and isinstance(view.args[1], int):
        axis = view.args[1] % rank
        entries = [*(slice(None),) * axis, view.args[2]]
    else:
        return None
    cuts = []
    for axis, entry in enumerate(entries):
        if isinstance(entry, slice):
            if entry.step not in (None, 1):
                return None
            if entry != slice(None) and entry != slice(None, None, 1):
                start = None if isinstance(entry.start, int) and entry.start == 0 else entry.start
                cuts.append(_Cut(axis, start, entry.stop, False))
        elif isinstance(entry, fx.Node):
            after = graph.call_function(operator.add, (entry, 1))
            cuts.append(_Cut(axis, entry, after, True))
        elif isinstance(entry, int) and not isinstance(entry, bool):
            stop = None if entry == -1 else entry + 1
            cuts.append(_Cut(axis, entry or None, stop, True))
        else:
            return None
    return cuts or None


def _full(index: Sequence[Any], rank: int) -> list[Any]:
    """An index without an ellipsis."""
    entries = list(index)
    for i, entry in enumerate(entries):
        if entry is Ellipsis:
            missing = rank - sum(e is not None for e in entries) + 1
            return [*entries[:i], *(slice(None),) * missing, *entries[i + 1 :]]
    return entries


def _scattered(graph: fx.Graph, whole: fx.Node, view: fx.Node, value: fx.Node) -> fx.Node:
    count = graph.call_method("numel", (whole,))
    where = graph.call_function(getattr, (whole, "device"))
    numbers = graph.call_function(torch.arange, (count,), {"device": where})
    numbers = graph.call_method("reshape_as", (numbers, whole))
    places = graph.node_copy(view, lambda n: n)
    places.args = (numbers, *view.args[1:])
    flat = graph.call_method("reshape", (whole, -1))
    values = graph.call_method("reshape", (value, -1))
    places = graph.call_method("reshape", (places, -1))
    made = graph.call_method("scatter", (flat, 0, places, values))
    return graph.call_method("reshape_as", (made, whole))
