"""The lists that link nodes and tensors, changed at a cost that does not grow with their length.

graphsurgeon keeps the consumers of a tensor, and the tensors of a node, in plain lists. Most have a
handful of entries, but every quantizer may read one scale, and one Concat may have thousands of
inputs. Finding an entry and closing the gap would then take time in proportion to the list.

* A long list of consumers only counts deleted entries. Its length is right immediately; the entries
  are removed when the list is read, or when half of them are deleted.
* A node with many tensors remembers the index of each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import onnx_graphsurgeon as gs

LONG = 64
"""Lists with at most this many entries are searched linearly."""


def cut(links: list[gs.Node], node: gs.Node) -> None:
    """Delete one link to `node`, looking from both ends (passes go in order or in reverse)."""
    last = list.__len__(links) - 1
    if last >= LONG:
        _let_go(links, node)
        return
    for i in range(last // 2 + 1):
        if links[i] is node:
            list.__delitem__(links, i)
            return
        if links[last - i] is node:
            list.__delitem__(links, last - i)
            return


# -- lists that keep deleted entries until they are read -----------------------------------------


def _let_go(links: list[gs.Node], node: gs.Node) -> None:
    """Count one entry that is `node` among the deleted ones."""
    state = vars(links)
    if "gone" not in state:
        links.__class__ = _lazy(type(links))
        state.update(gone={}, dead=0)
    gone: dict[int, int] = state["gone"]
    gone[id(node)] = gone.get(id(node), 0) + 1
    state["dead"] += 1
    if 2 * state["dead"] > list.__len__(links):
        _settle(links)


def _settle(links: list[gs.Node]) -> None:
    """Drop the deleted entries; a list that is short again is a plain one again."""
    state = vars(links)
    gone: dict[int, int] = state["gone"]
    if gone:
        kept = []
        for node in list.__iter__(links):
            left = gone.get(id(node), 0)
            if left:
                gone[id(node)] = left - 1
            else:
                kept.append(node)
        list.__setitem__(links, slice(None), kept)
        state.update(gone={}, dead=0)
    if 2 * list.__len__(links) <= LONG:
        del state["gone"], state["dead"]
        links.__class__ = type(links).__mro__[1]


_LOOKING = (
    *("__contains__", "__delitem__", "__eq__", "__ge__", "__getitem__", "__gt__", "__iter__"),
    *("__le__", "__lt__", "__mul__", "__ne__", "__repr__", "__reversed__", "__rmul__"),
    *("__reduce_ex__", "__setitem__", "clear", "copy", "count", "index", "insert", "pop"),
    *("remove", "reverse", "sort"),
)


@functools.cache
def _lazy(plain: type) -> Any:
    """The subclass of the list type `plain` whose methods do not see deleted entries."""

    def settled(name: str) -> Callable[..., Any]:
        method = getattr(plain, name)

        def looking(self: Any, *arguments: Any, **named: Any) -> Any:
            _settle(self)
            return method(self, *arguments, **named)

        return looking

    def length(self: Any) -> int:
        return list.__len__(self) - int(vars(self)["dead"])

    methods = {name: settled(name) for name in _LOOKING}
    return type(f"Lazy{plain.__name__}", (plain,), {"__slots__": (), "__len__": length, **methods})


# -- positions -----------------------------------------------------------------------------------


def slot_of(tensors: Sequence[gs.Tensor], tensor: gs.Tensor) -> int:
    """The index of `tensor` among the inputs or outputs of a node; it must be there."""
    if len(tensors) <= LONG:
        return next(i for i, t in enumerate(tensors) if t is tensor)
    slots = vars(tensors).get("slots", {})
    guess = slots.get(id(tensor), -1)
    if not 0 <= guess < len(tensors) or tensors[guess] is not tensor:
        slots = vars(tensors)["slots"] = {id(t): i for i, t in enumerate(tensors)}
        guess = slots[id(tensor)]
    return int(guess)


def slots_of(tensors: Sequence[gs.Tensor], tensor: gs.Tensor, times: int) -> list[int]:
    """The indices of `tensor`, which occurs so many `times`."""
    if times == 1 and len(tensors) > LONG:
        return [slot_of(tensors, tensor)]
    return [i for i, t in enumerate(tensors) if t is tensor]


def put(tensors: list[gs.Tensor], index: int, tensor: gs.Tensor) -> None:
    """Put `tensor` at `index`, this side of the link only, and remember its index."""
    list.__setitem__(tensors, index, tensor)
    if len(tensors) > LONG and "slots" in vars(tensors):
        vars(tensors)["slots"][id(tensor)] = index


__all__ = ["LONG", "cut", "put", "slot_of", "slots_of"]
