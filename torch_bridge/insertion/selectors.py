"""Chooses parts of a model, by the rules of `onnxq.quant.settings` and what only torch has.

"layer1"            the module of that path and all below it
"add_1"             the node of that name in the traced graph
"layer?.*.conv2"    every module or node that matches, and all below it
"re:layer[12]"      the same with a regular expression
"Conv", "Conv2d"    every layer of that kind, every module of that class
nn.Conv2d           every module of that class or a subclass
torch.add           every call of that function, in any form (x + y, x.add(y))

Classes and functions stand for their words (see `selector_words`), which a file can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import fx, nn

from onnxq.errors import OptionError, near_matches
from onnxq.operators.traits import WEIGHTED
from onnxq.quant.settings import Layers, LayerSettings, Rule
from torch_bridge.capture.mode_differences import OWNER
from torch_bridge.insertion.op_kinds import kind_of, module_kind
from torch_bridge.insertion.product_functions import WRITTEN_FOR
from torch_bridge.insertion.script_names import script_names
from torch_bridge.insertion.selector_words import class_words, function_words, words
from torch_bridge.nn.attention import ActivationProduct

_PRODUCTS = WEIGHTED | {"Embedding", "MatMul"}
Selector = str | type[nn.Module] | Callable[..., Any] | fx.Node


class Part(NamedTuple):
    """A module, by its path, or a node of the graph, by its name."""

    what: Literal["module", "node"]
    name: str


class Selection:
    """Modules (by path) and nodes (by name) that some selectors chose."""

    def __init__(self, modules: Iterable[str] = (), nodes: Iterable[str] = ()) -> None:
        self.modules = set(modules)
        self.nodes = set(nodes)

    def has_module(self, path: str) -> bool:
        """Whether the module at `path`, or one that contains it, was chosen."""
        return any(each in self.modules for each in _around(path))

    def has_node(self, node: fx.Node) -> bool:
        """Whether the node, the module it calls or the module of its code was chosen."""
        if node.name in self.nodes:
            return True
        if node.op == "call_module" and self.has_module(str(node.target)):
            return True
        owner = node.meta.get(OWNER, "")
        return bool(owner) and self.has_module(owner)

    def below(self, path: str) -> Selection:
        """The part of the selection inside the module at `path`, by paths from there."""
        inside = (p for p in self.modules if p.startswith(f"{path}."))
        return Selection(p.removeprefix(f"{path}.") for p in inside)

    def reason(self, _: fx.Node | str) -> str:
        """Why a node, or the module at a path, is among them."""
        return "excluded"


def parts_of(model: nn.Module, graph: fx.Graph | None) -> Layers:
    """All modules and nodes of a model, each with the names and kinds that select it."""
    modules = dict(model.named_modules(remove_duplicate=False))
    same: dict[int, list[str]] = {}
    for path, module in modules.items():
        same.setdefault(id(module), []).append(path)
    scripted = script_names(modules, graph)
    called = _called(modules, graph)
    found: dict[Part, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for path, module in modules.items():
        if path:
            names = (*same[id(module)], *scripted.get(path, ()))
            found[Part("module", path)] = names, (*_kinds(module), *_classes(path, modules))
    flat = {path.replace(".", "_") for path in modules}
    for node in graph.nodes if graph is not None else ():
        if node.op in ("placeholder", "output"):
            continue
        # A call of a module often has its path with other signs: that is no second name.
        own = () if node.name in flat else (node.name,)
        if node.op == "call_module" and node.target in modules:
            names, kinds = found[Part("module", str(node.target))]
            found[Part("node", node.name)] = (*own, *names), kinds
        else:
            owner = node.meta.get(OWNER, "")
            more = (owner,) if owner else ()
            names = (*own, *more, *scripted.get(node.name, ()))
            kinds = (*_functions(node, called), *_classes(owner, modules))
            found[Part("node", node.name)] = names, kinds
    return found


def product_parts(model: nn.Module, graph: fx.Graph | None) -> Iterator[Part]:
    """The modules and nodes of a model that multiply: a few names that stand for all of a rule."""
    modules = dict(model.named_modules())
    for path, module in modules.items():
        if _PRODUCTS.intersection(_kinds(module)):
            yield Part("module", path)
    called = _called(modules, graph)
    for node in graph.nodes if graph is not None else ():
        if node.op != "call_module" and kind_of(node, called) in _PRODUCTS:
            yield Part("node", node.name)


def _called(modules: dict[str, nn.Module], graph: fx.Graph | None) -> dict[str, nn.Module]:
    """The modules that a graph calls: tracing adds some to those of the model."""
    traced = None if graph is None else graph.owning_module
    return modules | ({} if traced is None else dict(traced.named_modules(remove_duplicate=False)))


def _kinds(module: nn.Module) -> Iterator[str]:
    if isinstance(module, ActivationProduct):  # what its code calls, for a model without a graph
        yield from ("MatMul", *function_words(torch.matmul))
    elif kind := module_kind(module):
        yield kind


def _functions(node: fx.Node, modules: Mapping[str, nn.Module]) -> Iterator[str]:
    """The kind of a node, and the words of the function that it calls or was written for."""
    if kind := kind_of(node, modules):
        yield kind
    if node.op in ("call_function", "call_method"):
        yield from function_words(node.target)
    if WRITTEN_FOR in node.meta:
        yield from function_words(node.meta[WRITTEN_FOR])


def _classes(path: str, modules: Mapping[str, nn.Module]) -> Iterator[str]:
    """The classes, and their names, of a module and of all that contain it, but the model."""
    for each in _around(path):
        if each in modules:
            kind = getattr(modules[each], "stands_for", type(modules[each]))
            yield kind.__name__
            yield from class_words(kind)


def _around(path: str) -> Iterator[str]:
    """The path, and those of the modules that contain it."""
    while path:
        yield path
        path = path.rpartition(".")[0]


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
    chosen, every = Selection(), tuple(selectors)
    parts = parts_of(model, graph) if every else {}
    for selector in every:
        found = _chosen(selector, parts, what)
        if not found:
            raise _unknown(selector, parts, what)
        chosen.modules |= {part.name for part in found if part.what == "module"}
        chosen.nodes |= {part.name for part in found if part.what == "node"}
    return chosen


def _chosen(selector: Selector, parts: Layers, what: str) -> list[Part]:
    if isinstance(selector, fx.Node):
        part = Part("node", selector.name)
        return [part] if part in parts else []
    if not isinstance(selector, str) and not callable(selector):
        raise OptionError(
            f"{what}: {selector!r} selects nothing",
            fix="give a module's path, a node's name, a glob, a module class or a function",
        )
    rule = Rule.of(words(selector), LayerSettings())
    return [part for part, (names, kinds) in parts.items() if rule.matches(names, kinds)]


def _unknown(selector: Selector, parts: Layers, what: str) -> OptionError:
    shown = words(selector)
    known = {text for names, kinds in parts.values() for text in (*names, *kinds)}
    return OptionError(
        f"{what}: no module, function or node matches '{shown}'",
        fix=near_matches(shown.removeprefix("re:"), known),
    )
