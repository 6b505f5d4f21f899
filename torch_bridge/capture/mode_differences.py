"""Makes one graph of the two that a model has in training and in evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import fx, nn

from torch_bridge.capture.argument_checks import TrainingFlag

Traced = tuple[fx.Graph, dict[str, list[str]]]
"""A graph, and the nodes and calls that the code of each module made, in order."""

OWNER = "onnxq_owner"
"""Key in a node's meta: the path of the module whose code made it."""
FLAG = "onnxq_training_flag"
_VALUES = "onnxq_mode_values"


class _Difference(NamedTuple):
    """A value in the arguments of a node that follows the mode."""

    at: tuple[Any, ...]
    train: bool | float
    evaluation: bool | float


class Untraceable(Exception):
    """One graph cannot hold the code of the module at `path`."""

    def __init__(
        self,
        path: str,
        reason: str = "its code differs between training and evaluation",
        *,
        harmless: bool = False,
    ) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason
        self.harmless = harmless
        """Whether it does nothing in evaluation (DropPath), so nothing in it is quantized."""


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
        raise Untraceable(path, harmless=not other_events[path])
    pairs = list(zip(graph.nodes, other.nodes, strict=True))
    twin = {b: a for a, b in pairs}
    for mine, its in pairs:
        flags: list[_Difference] = []
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
    a: Any,
    b: Any,
    twin: dict[fx.Node, fx.Node],
    at: tuple[Any, ...],
    flags: list[_Difference],
    owner: Any,
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
    elif type(a) is type(b) and a != b and isinstance(a, bool | float) and "slice" not in at:
        flags.append(_Difference(at, a, b))
    elif isinstance(a, fx.Node) or type(a) is not type(b) or not (a is b or a == b):
        raise Untraceable(owner.meta.get(OWNER, ""))


def _follow_mode(graph: fx.Graph, node: fx.Node, flags: list[_Difference]) -> None:
    """Read the values from modules beside the code that read `self.training`."""
    owner = node.meta.get(OWNER, "")
    made: dict[tuple[bool | float, bool | float], fx.Node] = {}
    for at, *values in flags:
        both = (values[0], values[1])
        if both not in made:
            name = FLAG if both == (True, False) else f"{FLAG}_{node.name}_{len(made)}"
            with graph.inserting_before(node):
                made[both] = graph.call_module(f"{owner}.{name}".lstrip("."))
            made[both].meta.update({OWNER: owner, _VALUES: both})
        node.args, node.kwargs = _put((node.args, node.kwargs), at, made[both])


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
        if _VALUES in node.meta:
            owner, _, name = str(node.target).rpartition(".")
            holder = root.get_submodule(owner)
            holder.add_module(name, TrainingFlag(*node.meta[_VALUES]).train(holder.training))
