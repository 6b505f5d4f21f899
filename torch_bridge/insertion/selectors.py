"""Chooses parts of a model by name, glob, class, function or node.

"layer1"            the module of that path and all below it
"add_1"             the node of that name in the traced graph
"layer?.*.conv2"    every module or node that matches
nn.Conv2d           every module of that class or a subclass
torch.add           every call of that function
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from typing import Any

from torch import fx, nn

from onnxq.errors import OptionError, near_matches
from torch_bridge.capture.mode_differences import OWNER

Selector = str | type[nn.Module] | Callable[..., Any] | fx.Node


class Selection:
    """Modules (by path) and nodes (by name) that some selectors chose."""

    def __init__(self, modules: Iterable[str] = (), nodes: Iterable[str] = ()) -> None:
        self.modules = set(modules)
        self.nodes = set(nodes)

    def has_module(self, path: str) -> bool:
        """Whether the module at `path`, or one that contains it, was chosen."""
        parts = path.split(".")
        return any(".".join(parts[: i + 1]) in self.modules for i in range(len(parts)))

    def has_node(self, node: fx.Node) -> bool:
        """Whether the node, the module it calls or the module of its code was chosen."""
        if node.name in self.nodes:
            return True
        if node.op == "call_module" and self.has_module(str(node.target)):
            return True
        owner = node.meta.get(OWNER, "")
        return bool(owner) and self.has_module(owner)


def select(
    selectors: Selector | Iterable[Selector],
    model: nn.Module,
    graph: fx.Graph | None,
    what: str,
) -> Selection:
    """The parts of a model that the selectors choose.

    Args:
        selectors: one or several.
        model: the model as the user knows it.
        graph: its traced graph, if there is one.
        what: name of the argument, for messages.
    """
    if isinstance(selectors, str | type | fx.Node) or callable(selectors):
        selectors = (selectors,)
    nodes = [] if graph is None else list(graph.nodes)
    chosen = Selection()
    for selector in selectors:
        modules, names = _one(selector, model, nodes, what)
        if not modules and not names:
            raise _unknown(selector, model, nodes, what)
        chosen.modules |= modules
        chosen.nodes |= names
    return chosen


def _one(
    selector: Selector, model: nn.Module, nodes: list[fx.Node], what: str
) -> tuple[set[str], set[str]]:
    """The paths of modules and the names of nodes that one selector chooses."""
    if isinstance(selector, fx.Node):
        return set(), {n.name for n in nodes if n.name == selector.name}
    if isinstance(selector, str):
        paths = {path for path, _ in model.named_modules(remove_duplicate=False) if path}
        names = {n.name for n in nodes if n.op not in ("placeholder", "output")}
        if any(sign in selector for sign in "*?["):
            return set(fnmatch.filter(paths, selector)), set(fnmatch.filter(names, selector))
        return {selector} & paths, {selector} & names - {p.replace(".", "_") for p in paths}
    if isinstance(selector, type) and issubclass(selector, nn.Module):
        return {p for p, m in model.named_modules() if p and isinstance(m, selector)}, set()
    if callable(selector):
        called = (n for n in nodes if n.op == "call_function" and n.target is selector)
        return set(), {n.name for n in called}
    raise OptionError(
        f"{what}: {selector!r} selects nothing",
        fix="give a module's path, a node's name, a glob, a module class or a function",
    )


def _unknown(selector: Selector, model: nn.Module, nodes: list[fx.Node], what: str) -> OptionError:
    if isinstance(selector, str):
        known = {p for p, _ in model.named_modules(remove_duplicate=False) if p}
        known |= {n.name for n in nodes} - {"output"}
        return OptionError(
            f"{what}: no module or node matches '{selector}'", fix=near_matches(selector, known)
        )
    name = getattr(selector, "__name__", None) or str(selector)
    if isinstance(selector, type):
        used = {type(m).__name__ for _, m in model.named_modules()}
        return OptionError(f"{what}: the model has no {name}", fix=near_matches(name, used))
    called = (n.target for n in nodes if n.op == "call_function")
    calls = {getattr(target, "__name__", str(target)) for target in called}
    return OptionError(
        f"{what}: the traced model does not call {name}", fix=near_matches(name, calls)
    )
