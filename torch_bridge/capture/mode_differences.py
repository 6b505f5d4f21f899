"""Makes one graph of the two that a model has in training and in evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx, nn

from torch_bridge.capture.argument_checks import TrainingFlag

Traced = tuple[fx.Graph, dict[str, list[str]]]
"""A graph, and the nodes and calls that the code of each module made, in order."""

OWNER = "onnxq_owner"
"""Key in a node's meta: the path of the module whose code made it."""
FLAG = "onnxq_training_flag"


class Untraceable(Exception):
    """One graph cannot hold the code of the module at `path`."""

    def __init__(
        self, path: str, reason: str = "its code differs between training and evaluation"
    ) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason


def reconcile(train: Traced, evaluation: Traced | None = None) -> fx.Graph:
    """One graph for both modes; values that follow the mode are read from it at run time.

    Raises:
        Untraceable: the graphs differ in more than values that follow the mode.
    """
    graph, events = train
    if evaluation is None:
        return graph
    other, other_events = evaluation
    for path in differing(events, other_events):
        raise Untraceable(path)
    pairs = list(zip(graph.nodes, other.nodes, strict=True))
    twin = {b: a for a, b in pairs}
    for mine, its in pairs:
        flags: list[tuple[Any, ...]] = []
        _compare((mine.args, mine.kwargs), (its.args, its.kwargs), twin, (), flags, mine)
        if flags:
            _follow_mode(graph, mine, flags)
    return graph


def differing(train: dict[str, list[str]], evaluation: dict[str, list[str]]) -> list[str]:
    """The modules whose code does something else in training than in evaluation.

    If a module runs in one mode only, the difference is in the module that calls it.
    """
    return [p for p in train if p in evaluation and train[p] != evaluation[p]]


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
        mine, its = ((s.start, s.stop, s.step) for s in (a, b))
        _compare(mine, its, twin, (*at, "slice"), flags, owner)
    elif a is True and b is False and "slice" not in at:
        flags.append(at)
    elif isinstance(a, fx.Node) or type(a) is not type(b) or not (a is b or a == b):
        raise Untraceable(owner.meta.get(OWNER, ""))


def _follow_mode(graph: fx.Graph, node: fx.Node, flags: list[tuple[Any, ...]]) -> None:
    """Read the mode from a module beside the code that read `self.training`."""
    owner = node.meta.get(OWNER, "")
    path = f"{owner}.{FLAG}".lstrip(".")
    with graph.inserting_before(node):
        flag = graph.call_module(path)
    flag.meta[OWNER] = owner
    for at in flags:
        node.args, node.kwargs = _put((node.args, node.kwargs), at, flag)


def _put(value: Any, at: Sequence[Any], new: Any) -> Any:
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
