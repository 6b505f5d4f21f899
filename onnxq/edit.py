"""The verbs that passes use to query and change a graph.

graphsurgeon's objects compare by name and value, cannot be hashed, and its list methods remove by
equality. These functions work by identity, keep the names of graph inputs and outputs, never
change a constant with other consumers, and cost the same for any size of graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.ir.tensor import LazyValues

from onnxq.graph import Model, domain_of
from onnxq.graph.dead_code import detach
from onnxq.graph.links import cut, put, slot_of, slots_of
from onnxq.quant.qparams import GRAPH_OUTPUT, Reader
from onnxq.storage.exporter import describe
from onnxq.storage.gs_objects import make_constant, make_node, make_variable
from onnxq.storage.importer import bodies

__all__ = [
    "constant",
    "describe",
    "drop_domains",
    "identity",
    "inputs_of",
    "insert",
    "insert_at",
    "new_node",
]
__all__ += [
    "new_values",
    "only_reader",
    "producer",
    "read_by",
    "readers",
    "remove",
    "remove_all",
    "replace",
    "replace_by_node",
]
__all__ += ["set_input", "set_inputs", "set_output", "users", "variable"]

# -- looking --------------------------------------------------------------------------------


def op_name(node: gs.Node) -> str:
    """The operator with its domain, as users write it: 'Conv', 'domain::Op'."""
    domain = domain_of(node)
    return f"{domain}::{node.op}" if domain else str(node.op)


def producer(tensor: gs.Tensor, *ops: str) -> gs.Node | None:
    """The producer of `tensor`, if it is one of `ops` ('Conv', 'domain::Op'; none = any)."""
    if not tensor.inputs:
        return None
    node: gs.Node = tensor.inputs[0]
    return node if not ops or op_name(node) in ops else None


def readers(tensor: gs.Tensor) -> list[gs.Node]:
    """Nodes that read `tensor`, once for each use, including those in bodies."""
    return list(tensor.outputs)


def users(tensor: gs.Tensor) -> list[tuple[gs.Node, int]]:
    """Every (node, input number) that reads `tensor`."""
    if len(tensor.outputs) == 1:
        node = tensor.outputs[0]
        return [(node, i) for i in slots_of(node.inputs, tensor, 1)]
    times = Counter(map(id, tensor.outputs))
    return [
        (node, i)
        for node in {id(n): n for n in tensor.outputs}.values()
        for i in slots_of(node.inputs, tensor, times[id(node)])
    ]


def only_reader(tensor: gs.Tensor, node: gs.Node, model: Model) -> bool:
    """Whether `node` is the only use of `tensor`."""
    uses = tensor.outputs
    return len(uses) == 1 and uses[0] is node and not model.is_output(tensor)


def read_by(node: gs.Node, index: int) -> Reader:
    """The name of one use of a tensor, as tables write it."""
    return Reader(next((t.name for t in node.outputs if t.name), node.name), index)


def inputs_of(node: gs.Node, count: int) -> list[gs.Tensor | None]:
    """The first `count` inputs; None for an optional one left out."""
    given: list[gs.Tensor | None] = [t if t.name else None for t in node.inputs[:count]]
    return given + [None] * (count - len(given))


# -- making ---------------------------------------------------------------------------------


def constant(model: Model, name: str, value: Any) -> gs.Constant:
    """A new initializer of the main graph, visible in every body, under a fresh name."""
    if not isinstance(value, LazyValues):
        # np.ascontiguousarray would turn a scalar into a vector of one.
        value = np.asarray(value, order="C")
    made = make_constant(model.fresh_name(name), value, model.graph)
    model.made.append(made)
    return made


def new_values(model: Model, old: gs.Tensor, value: Any, reader: gs.Node) -> gs.Constant:
    """A new initializer that `reader` can read instead of `old`.

    If `old` has no other consumer it is removed, and the new one takes over its name.
    """
    made = constant(model, old.name, value)
    if only_reader(old, reader, model):
        made.name, old.name = old.name, made.name
    return made


def variable(model: Model, name: str, like: gs.Tensor | None) -> gs.Variable:
    """A new tensor under a fresh name, with the type and shape of `like` if known."""
    if like is None:
        return make_variable(model.fresh_name(name))
    shape = None if like.shape is None else list(like.shape)
    return make_variable(model.fresh_name(name), like.dtype, shape)


def new_node(
    model: Model,
    op: str,
    inputs: list[gs.Tensor],
    outputs: list[gs.Tensor],
    *,
    name: str,
    attrs: dict[str, Any] | None = None,
    graph: gs.Graph | None = None,
    instead_of: gs.Node | None = None,
) -> gs.Node:
    """A new node ('Op' or 'domain::Op') at the end of `graph`; the exporter sorts.

    `instead_of` is a node of the same graph that it replaces, alone or with others: when the pass
    ends, they take its place.
    """
    domain, _, op_type = op.rpartition("::")
    if graph is None:
        graph = model.graph if instead_of is None else instead_of.owner
    node = make_node(
        op_type, model.fresh_node_name(name), attrs or {}, inputs, outputs, domain or None, graph
    )
    graph.nodes.append(node)
    if instead_of is not None:
        instead_of.heirs = (*getattr(instead_of, "heirs", ()), node)
    model.note_bodies(node)
    return node


# -- changing -------------------------------------------------------------------------------


def set_input(node: gs.Node, index: int, tensor: gs.Tensor) -> None:
    """Make input `index` of `node` read `tensor`; inputs in between are left out."""
    inputs = node.inputs
    while len(inputs) <= index:
        inputs.append(gs.Variable(""))
    old = inputs[index]
    if old is tensor:
        return
    cut(old.outputs, node)
    put(inputs, index, tensor)
    list.append(tensor.outputs, node)


def set_inputs(changes: Iterable[tuple[gs.Node, int, gs.Tensor]]) -> None:
    """`set_input` for many existing inputs, linear even in the consumers of one tensor."""
    cut: dict[int, tuple[gs.Tensor, Counter[int]]] = {}
    for node, index, tensor in changes:
        old = node.inputs[index]
        cut.setdefault(id(old), (old, Counter()))[1][id(node)] += 1
        put(node.inputs, index, tensor)
        list.append(tensor.outputs, node)
    for old, count in cut.values():
        _cut_all(old.outputs, count)


def _cut_all(links: list[gs.Node], count: Counter[int]) -> None:
    """Delete links to nodes: `count` (by `id`) gives the number for each."""
    kept = []
    for node in links:
        if count[id(node)] > 0:
            count[id(node)] -= 1
        else:
            kept.append(node)
    list.__setitem__(links, slice(None), kept)


def set_output(node: gs.Node, index: int, tensor: gs.Tensor) -> None:
    """Make output `index` of `node` the tensor `tensor`."""
    cut(node.outputs[index].inputs, node)
    put(node.outputs, index, tensor)
    list.append(tensor.inputs, node)


def remove(node: gs.Node, model: Model) -> None:
    """Remove `node` from the graph; anything only it used is removed when the pass ends."""
    model.free_node_name(node.name)
    detach(node)


def remove_all(nodes: Iterable[gs.Node]) -> None:
    """Remove many nodes from the graph, linear even in the consumers of one tensor."""
    cut: dict[int, tuple[gs.Tensor, Counter[int]]] = {}
    for node in nodes:
        for tensor in node.inputs:
            cut.setdefault(id(tensor), (tensor, Counter()))[1][id(node)] += 1
        list.clear(node.inputs)
        detach(node)
    for tensor, count in cut.values():
        _cut_all(tensor.outputs, count)


def drop_domains(model: Model, *domains: str) -> None:
    """Drop the functions and version of those `domains` whose operators are no longer used."""
    called = {(domain_of(node), node.op) for node in model.nodes()}
    called |= {(node.domain, node.op_type) for f in model.functions for node in f.node}
    model.functions = [
        f for f in model.functions if f.domain not in domains or (f.domain, f.name) in called
    ]
    used = {domain for domain, _ in called} | {f.domain for f in model.functions}
    for domain in set(domains) - used:
        model.opsets.pop(domain, None)


def replace(node: gs.Node, by: gs.Tensor, model: Model) -> None:
    """Let every consumer of the node's first output read `by` instead, and remove the node.

    If that output is a graph output its name stays: the producer of `by` takes over the name or, if
    `by` has no producer or another public name, the node becomes an Identity.
    """
    old = node.outputs[0]
    if not model.is_output(old):
        for user, index in users(old):
            set_input(user, index, by)
        detach(node)
        return
    maker = producer(by)
    if maker is None or maker is node or model.is_output(by) or maker.owner is not node.owner:
        for user, index in users(old):
            set_input(user, index, by)
        identity(node, by)
        return
    slot = slot_of(maker.outputs, by)
    detach(node)
    set_output(maker, slot, old)
    for user, index in users(by):
        set_input(user, index, old)


def replace_by_node(
    node: gs.Node,
    op: str,
    inputs: list[gs.Tensor],
    model: Model,
    attrs: dict[str, Any] | None = None,
) -> gs.Node:
    """Let a new node of `op` produce the first output of `node`, under its name; remove `node`."""
    out = node.outputs[0]
    name = node.name or out.name
    remove(node, model)
    return new_node(model, op, inputs, [out], name=name, attrs=attrs, instead_of=node)


def identity(node: gs.Node, tensor: gs.Tensor) -> None:
    """Turn `node` into an Identity of `tensor`; its former bodies release what they read."""
    graphs = list(bodies(node))
    while graphs:
        body = graphs.pop()
        for inner in [n for n in body.nodes if n.owner is body]:
            graphs.extend(bodies(inner))
            detach(inner)
    outputs = list(node.outputs)
    for extra in outputs[1:]:
        cut(extra.inputs, node)
    for old in node.inputs:
        cut(old.outputs, node)
    list.clear(node.inputs)
    list.__setitem__(node.outputs, slice(None), outputs[:1])
    node.op, node.domain, node.attrs = "Identity", None, {}
    node.source = None
    node.inputs.append(tensor)


def insert(
    model: Model,
    tensor: gs.Tensor,
    build: Callable[[gs.Tensor, gs.Tensor, gs.Graph], Any],
    uses: Iterable[Reader] | None = None,
    name: str | None = None,
) -> gs.Tensor | None:
    """Insert something between `tensor` and its uses (all of them, or those given).

    `build(source, result, graph)` must add to `graph` the nodes that compute `result` from
    `source`. Returns the result; None if `tensor` is both an input and an output of the graph, so
    that nothing can be inserted.
    """
    wanted = None if uses is None else set(uses)
    moved = [(n, i) for n, i in users(tensor) if wanted is None or read_by(n, i) in wanted]
    leaves = model.is_output(tensor) and (wanted is None or GRAPH_OUTPUT in wanted)
    return insert_at(model, tensor, build, moved, leaves, name)


def insert_at(
    model: Model,
    tensor: gs.Tensor,
    build: Callable[[gs.Tensor, gs.Tensor, gs.Graph], Any],
    moved: list[tuple[gs.Node, int]],
    leaves: bool,
    name: str | None = None,
) -> gs.Tensor | None:
    """`insert` for known uses: the (node, input number) pairs and, if `leaves`, the output."""
    maker = producer(tensor)
    graph = maker.owner if maker is not None else getattr(tensor, "owner", model.graph)
    if not leaves:
        result = variable(model, name or f"{tensor.name}.q", like=tensor)
        for user, index in moved:
            set_input(user, index, result)
        build(tensor, result, graph)
        return result
    if maker is None:
        return None
    # The object that leaves the graph keeps its name: what is inserted makes it.
    source = variable(model, name or f"{tensor.name}.raw", like=tensor)
    slot = slot_of(maker.outputs, tensor)
    set_output(maker, slot, source)
    moving = {(id(n), i) for n, i in moved}
    for user, index in users(tensor):
        if (id(user), index) not in moving:
            set_input(user, index, source)
    build(source, tensor, graph)
    return tensor
