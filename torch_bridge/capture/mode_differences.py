"""Make one graph of the two that a model has in training and in evaluation."""

from __future__ import annotations

from typing import Any

from torch import fx, nn

from torch_bridge.capture.argument_checks import TrainingFlag

Traced = tuple[fx.Graph, dict[str, list[str]]]
"""A graph, and what the code of each module did, in order."""

OWNER = "onnxq_owner"
"""Key in a node's meta: the path of the module whose code made it."""
FLAG = "onnxq_training_flag"
BRANCHES = "its code does other things in training than in evaluation"


class Difference(Exception):
    """The graphs differ in a way that one graph cannot hold."""

    def __init__(self, path: str, reason: str = BRANCHES) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason


def reconcile(train: Traced, evaluation: Traced | None = None) -> fx.Graph:
    """One graph for both modes; values that follow the mode are read from it at run time.

    Raises:
        Difference: with the path of the module that has to stay as it is.
    """
    graph, events = train
    if evaluation is None:
        return graph
    other, other_events = evaluation
    # A module that runs in one mode only is not to blame: the one that calls it is.
    both = [path for path in events if path in other_events]
    for path in both:
        if events[path] != other_events[path]:
            raise Difference(path)
    pairs = list(zip(graph.nodes, other.nodes, strict=True))
    twin = {b: a for a, b in pairs}
    for mine, its in pairs:
        flags: list[tuple[Any, ...]] = []
        _compare(mine.args, its.args, twin, ("args",), flags, mine)
        _compare(mine.kwargs, its.kwargs, twin, ("kwargs",), flags, mine)
        if flags:
            _follow_mode(graph, mine, flags)
    return graph


def _compare(
    a: Any, b: Any, twin: dict[fx.Node, fx.Node], at: tuple[Any, ...], flags: list[Any], owner: Any
) -> None:
    if isinstance(a, fx.Node) and isinstance(b, fx.Node) and twin.get(b) is a:
        return
    if isinstance(a, tuple | list) and type(a) is type(b) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            _compare(x, y, twin, (*at, i), flags, owner)
    elif isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        for key in a:
            _compare(a[key], b[key], twin, (*at, key), flags, owner)
    elif isinstance(a, slice) and isinstance(b, slice):
        ends = ((a.start, b.start), (a.stop, b.stop), (a.step, b.step))
        for x, y in ends:
            _compare(x, y, twin, (*at, "slice"), flags, owner)
    elif a is True and b is False and "slice" not in at:
        flags.append(at)
    elif isinstance(a, fx.Node) or isinstance(b, fx.Node) or not _same(a, b):
        raise Difference(owner.meta.get(OWNER, ""))


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a is b or bool(a == b))


def _follow_mode(graph: fx.Graph, node: fx.Node, flags: list[tuple[Any, ...]]) -> None:
    """Read the mode from a module beside the code that read `self.training`."""
    owner = node.meta.get(OWNER, "")
    path = f"{owner}.{FLAG}".lstrip(".")
    with graph.inserting_before(node):
        flag = graph.call_module(path)
    flag.meta[OWNER] = owner
    for where, *at in flags:
        if where == "args":
            node.args = _put(node.args, at, flag)
        else:
            node.kwargs = _put(node.kwargs, at, flag)


def _put(value: Any, at: list[Any], new: Any) -> Any:
    if not at:
        return new
    first, *rest = at
    if isinstance(value, dict):
        return {k: _put(v, rest, new) if k == first else v for k, v in value.items()}
    return type(value)(_put(v, rest, new) if i == first else v for i, v in enumerate(value))


def add_flags(root: nn.Module, graph: fx.Graph) -> None:
    """Put the modules that read the mode where `graph` expects them."""
    for node in graph.nodes:
        owner, _, name = str(node.target).rpartition(".")
        if node.op == "call_module" and name == FLAG:
            holder = root.get_submodule(owner)
            holder.add_module(FLAG, TrainingFlag().train(holder.training))
