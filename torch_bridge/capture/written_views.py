"""Writes into a part of a tensor, as functions: after `y[:, 0] *= 2` the graph reads a new y.

    y[:, 0].mul_(2)    ->    part = y[:, 0] * 2;   y = cat([part[:, None], y[:, 1:]], 1)

Exporters lose such writes: TorchScript's forgets that `y[:, 0]` and `y` are the same memory. A
quantizer between the two would separate them as well. A run of the example tells which values
share memory, and which nodes write. Tensors that others see too (arguments, parameters, buffers)
are still written into, and so are those with views of a kind that is not in the table.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.capture.mode_differences import OWNER
from torch_bridge.capture.value_types import ExampleRun
from torch_bridge.functions.scattered_parts import put

_VIEWS = (
    *("getitem", "select", "narrow", "slice", "squeeze", "unsqueeze", "transpose", "permute", "t"),
    *("swapaxes", "movedim", "view", "view_as", "reshape", "flatten", "unflatten", "contiguous"),
)
"""Functions and methods whose result is a part of their first argument, or all of it."""

_OPERATORS: dict[str, Callable[..., Any]] = {
    "iadd": operator.add,
    "isub": operator.sub,
    "imul": operator.mul,
    "itruediv": operator.truediv,
}
_FILLS = ("copy_", "fill_", "zero_")


def write_as_functions(graph_module: fx.GraphModule, call: ExampleCall) -> None:
    """Replace writes through views by new tensors, where nobody but the graph sees the old ones."""
    graph = graph_module.graph
    if not any(_is_writer(node) for node in graph.nodes):
        return
    run = _MemoryRun(graph_module, call)
    run.run_example()
    for members in run.rewritable():
        _Rewriting(graph, members, run).rewrite()
        graph_module.recompile()
    graph.lint()


class _MemoryRun(ExampleRun):
    """Finds which nodes share memory, and which of them write."""

    def __init__(self, graph_module: fx.GraphModule, call: ExampleCall) -> None:
        super().__init__(graph_module, call)
        self.garbage_collect_values = False  # memory that is freed would be shared by chance
        self.sharing: dict[int, list[fx.Node]] = defaultdict(list)
        self.writers: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:
        read: list[Any] = [v for v in map(self.env.get, n.all_input_nodes) if _has_version(v)]
        before = [value._version for value in read]
        value = super().run_node(n)
        if [value._version for value in read] != before:
            self.writers.add(n)
        if n.op != "output":
            tensors = (v for v in pytree.tree_leaves(value) if isinstance(v, Tensor))
            for memory in dict.fromkeys(map(_memory, tensors)):
                self.sharing[memory].append(n)
        return value

    def rewritable(self) -> list[list[fx.Node]]:
        """The nodes of each tensor that is written into in part, and is the graph's own."""
        seen = [*self.graph_module.parameters(), *self.graph_module.buffers()]
        foreign = set(map(_memory, seen))
        return [
            nodes
            for memory, nodes in self.sharing.items()
            if memory not in foreign and self._is_understood(nodes)
        ]

    def _is_understood(self, nodes: Sequence[fx.Node]) -> bool:
        made, *others = nodes
        views = [n for n in others if n not in self.writers]
        return (
            made.op.startswith("call_")
            and made not in self.writers
            and len(views) < len(others)
            and any(_name(n) != "contiguous" for n in views)
            and all(n.args and n.args[0] in nodes for n in others)
            and all(_name(n) in _VIEWS and n.op != "call_module" for n in views)
            and all(_is_writer(n) for n in others if n in self.writers)
            and all(isinstance(self.env[n], Tensor) and self.env[n].numel() for n in nodes)
        )


class _Rewriting:
    """Rewrites all reads and writes of one tensor."""

    def __init__(self, graph: fx.Graph, members: Sequence[fx.Node], run: _MemoryRun) -> None:
        self.graph, self.members, self.run = graph, members, run
        self.parent: dict[fx.Node, fx.Node] = {}
        self.same: dict[fx.Node, fx.Node] = {}
        """What the result of a write stands for: the tensor or part that is written into."""
        self.now: dict[fx.Node, fx.Node] = {members[0]: members[0]}
        self.owner = ""

    def rewrite(self) -> None:
        """Go through the graph in order."""
        before = set(self.graph.nodes)
        for node in list(self.graph.nodes):
            written = node in self.run.writers and node in self.members
            whole = node.args[0] if node in self.members and node.args else None
            if node is not self.members[0]:
                node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), self._present)
            if written:
                assert isinstance(whole, fx.Node)
                self.same[node] = self.same.get(whole, whole)
                self._write(node, self.same[node])
            elif node in self.members[1:]:
                assert isinstance(whole, fx.Node)
                self.parent[node] = self.same.get(whole, whole)
                self.now[node] = node
        for node in reversed(list(self.graph.nodes)):
            if not node.users and (node in self.members or node not in before):
                self.graph.erase_node(node)

    def _present(self, node: fx.Node) -> fx.Node:
        return self.now.get(self.same.get(node, node), node)

    def _write(self, writer: fx.Node, part: fx.Node) -> None:
        before = set(self.graph.nodes)
        with self.graph.inserting_before(writer):
            value = self._written(writer)
            self._becomes(part, value)
            changed = {part}
            while part in self.parent:
                whole = self.parent[part]
                value = put(self.graph, self.now[whole], part, value, self.run.env[whole].dim())
                self._becomes(whole, value)
                changed.add(whole)
                part = whole
            for view, whole in self.parent.items():
                if view not in changed:  # it sees the change, too
                    again = self.graph.node_copy(view, lambda n: n)
                    again.args = (self.now[whole], *view.args[1:])
                    self._becomes(view, again)
        for node in self.graph.nodes:
            if node not in before:
                node.meta[OWNER] = writer.meta.get(OWNER, "")

    def _becomes(self, member: fx.Node, value: fx.Node) -> None:
        self.now[member] = value
        self.run.env.setdefault(value, self.run.env[member])  # for its type and shape

    def _written(self, writer: fx.Node) -> fx.Node:
        """What `writer` writes, as a tensor of the type and shape of the part it writes into."""
        graph, name = self.graph, _name(writer)
        part, *rest = writer.args
        old = self.run.env[writer]
        if name in _FILLS:
            given = rest[0] if rest else writer.kwargs.get("value", writer.kwargs.get("src", 0))
            source = self.run.env.get(given) if isinstance(given, fx.Node) else None
            if not isinstance(source, Tensor):
                return graph.call_function(torch.full_like, (part, given))
            if source.dtype != old.dtype:
                given = graph.call_method("type_as", (given, part))
            if source.shape != old.shape:
                given = graph.call_method("expand_as", (given, part))
            assert isinstance(given, fx.Node)
            return given
        if name in _OPERATORS:
            made = graph.call_function(_OPERATORS[name], writer.args)
        else:
            made = graph.call_method(name[:-1], writer.args, dict(writer.kwargs))
        values = (self.run.env.get(node) for node in writer.all_input_nodes)
        if all(v.dtype == old.dtype for v in values if isinstance(v, Tensor) and v.dim()):
            return made
        return graph.call_method("type_as", (made, part))


def _is_writer(node: fx.Node) -> bool:
    """Whether `node` writes into its first argument in a way that has a function."""
    name = _name(node)
    if node.op not in ("call_function", "call_method"):
        return False
    out_of_place = name.endswith("_") and not name.endswith("__") and hasattr(Tensor, name[:-1])
    return out_of_place or name in _OPERATORS or name in _FILLS


def _name(node: fx.Node) -> str:
    packet = getattr(node.target, "overloadpacket", node.target)
    return packet if isinstance(packet, str) else getattr(packet, "__name__", "")


def _has_version(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_inference()


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
