"""The verbs passes use to look at and change a graph.

graphsurgeon's objects compare by name and value, cannot be hashed, and its list methods remove by
equality. These functions work by identity, keep the names of graph inputs and outputs, never
change a constant that others read, and cost the same however large the graph is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.exporter import describe
from onnxq.graph import Model, _cut, detach, domain_of
from onnxq.qparams import GRAPH_OUTPUT, Array, Reader
from onnxq.tensors import numpy_dtype, values_of

__all__ = [
    *("array", "constant", "describe", "inputs_of", "insert", "is_constant", "new_node"),
    *("identity", "only_reader", "producer", "read_by", "readers", "remove", "replace"),
    *("scalar", "set_input", "set_output", "users", "variable"),
]

# -- looking --------------------------------------------------------------------------------


def producer(tensor: gs.Tensor, *ops: str) -> gs.Node | None:
    """The node that makes `tensor`, if it is one of `ops` ('Conv', 'domain::Op'; none = any)."""
    made_by = tensor.inputs
    if not made_by:
        return None
    node = made_by[0]
    if ops and node.op not in ops:
        domain = domain_of(node)
        return node if domain and f"{domain}::{node.op}" in ops else None
    return node if not ops or domain_of(node) == "" else None


def readers(tensor: gs.Tensor) -> list[gs.Node]:
    """Nodes that read `tensor`, each as often as it reads it, those in bodies included."""
    return list(tensor.outputs)


def users(tensor: gs.Tensor) -> list[tuple[gs.Node, int]]:
    """Every (node, input number) that reads `tensor`."""
    seen: set[int] = set()
    found = []
    for node in tensor.outputs:
        if id(node) not in seen:
            seen.add(id(node))
            found += [(node, i) for i, t in enumerate(node.inputs) if t is tensor]
    return found


def only_reader(tensor: gs.Tensor, node: gs.Node, model: Model) -> bool:
    """Whether `node` is the one and only use of `tensor`."""
    uses = tensor.outputs
    return len(uses) == 1 and uses[0] is node and not model.is_output(tensor)


def read_by(node: gs.Node, index: int) -> Reader:
    """The name of one use of a tensor, as tables write it."""
    return Reader(next((t.name for t in node.outputs if t.name), node.name), index)


def inputs_of(node: gs.Node, count: int) -> list[gs.Tensor | None]:
    """The first `count` inputs; None where an optional one is left out."""
    given: list[gs.Tensor | None] = [t if t.name else None for t in node.inputs[:count]]
    return given + [None] * (count - len(given))


# -- constants ------------------------------------------------------------------------------


def array(tensor: gs.Tensor | None) -> Array | None:
    """The value of a constant tensor, read-only; None if it is only known at run time.

    Sees through Constant nodes and through Identity, Cast, Transpose, Reshape, Squeeze and
    Unsqueeze of constants, since exporters put those behind weights.
    """
    if tensor is None or not tensor.name:
        return None
    if isinstance(tensor, gs.Constant):
        return None if getattr(tensor, "overridable", False) else values_of(tensor)
    node = producer(tensor)
    if node is None or domain_of(node):
        return None
    if node.op == "Constant":
        return constant_value(node)
    evaluate = _TRANSPARENT.get(node.op)
    if evaluate is None:
        return None
    value = array(node.inputs[0])
    if value is None:
        return None
    result = evaluate(node, value)
    if result is not None:
        result = result.view()
        result.setflags(write=False)
    return result


def is_constant(tensor: gs.Tensor | None) -> bool:
    """Whether `array` knows the value of `tensor`."""
    return array(tensor) is not None


def scalar(tensor: gs.Tensor | None) -> float | None:
    """The value of a constant with one element."""
    value = array(tensor)
    return float(value.reshape(())) if value is not None and value.size == 1 else None


def constant_value(node: gs.Node) -> Array | None:
    """What a Constant node makes, in the type ONNX gives it (value_float is float32)."""
    for key, value in node.attrs.items():
        if key == "value" and isinstance(value, gs.Constant):
            return values_of(value)
        if key in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if key in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if key in ("value_string", "value_strings"):
            return np.asarray(value, object)
    return None


def _cast(node: gs.Node, value: Array) -> Array | None:
    if value.dtype.kind == "O":
        return None
    return value.astype(numpy_dtype(node.attrs["to"]))


def _transpose(node: gs.Node, value: Array) -> Array | None:
    return np.transpose(value, node.attrs.get("perm"))


def _reshape(node: gs.Node, value: Array) -> Array | None:
    shape = array(node.inputs[1]) if len(node.inputs) > 1 else None
    if shape is None:
        return None
    keep_zero = node.attrs.get("allowzero", 0)
    dims = [
        value.shape[i] if d == 0 and not keep_zero else int(d) for i, d in enumerate(shape.tolist())
    ]
    return value.reshape(dims)


def _axes(node: gs.Node) -> tuple[bool, Any]:
    """Whether the axes are known, and what they are (attribute before opset 13, then input)."""
    if "axes" in node.attrs:
        return True, tuple(node.attrs["axes"])
    if len(node.inputs) < 2 or not node.inputs[1].name:
        return True, None
    axes = array(node.inputs[1])
    return axes is not None, None if axes is None else tuple(axes.reshape(-1).tolist())


def _squeeze(node: gs.Node, value: Array) -> Array | None:
    known, axes = _axes(node)
    return np.squeeze(value, axes) if known else None


def _unsqueeze(node: gs.Node, value: Array) -> Array | None:
    known, axes = _axes(node)
    return np.expand_dims(value, axes) if known and axes is not None else None


_TRANSPARENT: dict[str, Callable[[gs.Node, Array], Array | None]] = {
    "Identity": lambda node, value: value,
    "Cast": _cast,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}


# -- making ---------------------------------------------------------------------------------


def constant(model: Model, name: str, value: Any) -> gs.Constant:
    """A new initializer of the main graph, visible in every body, under a fresh name."""
    # np.ascontiguousarray would turn a scalar into a vector of one.
    made = gs.Constant(model.fresh_name(name), np.asarray(value, order="C"))
    made.owner = model.graph
    made.overridable = False
    model.made.append(made)
    return made


def variable(model: Model, name: str, like: gs.Tensor | None) -> gs.Variable:
    """A new tensor under a fresh name, with type and shape of `like` where these are known."""
    if like is None:
        return gs.Variable(model.fresh_name(name))
    shape = None if like.shape is None else list(like.shape)
    return gs.Variable(model.fresh_name(name), like.dtype, shape)


def new_node(
    model: Model,
    op: str,
    inputs: list[gs.Tensor],
    outputs: list[gs.Tensor],
    *,
    name: str,
    attrs: dict[str, Any] | None = None,
    graph: gs.Graph | None = None,
) -> gs.Node:
    """A new node ('Op' or 'domain::Op') at the end of `graph`; the exporter sorts."""
    domain, _, op_type = op.rpartition("::")
    node = gs.Node(op_type, model.fresh_name(name), attrs or {}, inputs, outputs, domain or None)
    node.owner = graph if graph is not None else model.graph
    node.owner.nodes.append(node)
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
    _cut(old.outputs, node)
    list.__setitem__(inputs, index, tensor)
    list.append(tensor.outputs, node)


def set_output(node: gs.Node, index: int, tensor: gs.Tensor) -> None:
    """Make output `index` of `node` the tensor `tensor`."""
    _cut(node.outputs[index].inputs, node)
    list.__setitem__(node.outputs, index, tensor)
    list.append(tensor.inputs, node)


def remove(node: gs.Node, model: Model) -> None:
    """Take `node` out of the graph; what only it needed goes when the pass ends."""
    detach(node)


def replace(node: gs.Node, by: gs.Tensor, model: Model) -> None:
    """Let every reader of the node's first output read `by` instead, and remove the node.

    Where that output leaves a graph its name stays: the producer of `by` takes the name over, or,
    where `by` has none or another public name, the node becomes an Identity.
    """
    old = node.outputs[0]
    if not model.is_output(old):
        for user, index in users(old):
            set_input(user, index, by)
        detach(node)
        return
    maker = producer(by)
    if (
        maker is None
        or maker is node
        or model.is_output(by)
        or maker.owner is not node.owner
    ):
        for user, index in users(old):
            set_input(user, index, by)
        identity(node, by)
        return
    slot = next(i for i, t in enumerate(maker.outputs) if t is by)
    detach(node)
    set_output(maker, slot, old)
    for user, index in users(by):
        set_input(user, index, old)


def identity(node: gs.Node, tensor: gs.Tensor) -> None:
    """Turn `node` into an Identity of `tensor`."""
    outputs = list(node.outputs)
    for extra in outputs[1:]:
        _cut(extra.inputs, node)
    for old in node.inputs:
        _cut(old.outputs, node)
    list.clear(node.inputs)
    list.__setitem__(node.outputs, slice(None), outputs[:1])
    node.op, node.domain, node.attrs = "Identity", None, {}
    node.source = None
    node.inputs.append(tensor)


def insert(
    model: Model,
    tensor: gs.Tensor,
    build: Callable[[gs.Tensor, gs.Tensor, gs.Graph], None],
    uses: Iterable[Reader] | None = None,
    name: str | None = None,
) -> gs.Tensor | None:
    """Put something between `tensor` and its uses (all of them, or those named).

    `build(source, result, graph)` must add to `graph` the nodes that make `result` from `source`.
    Returns the result; None where `tensor` is both an input and an output of the graph, so that
    nothing can be put between.
    """
    wanted = None if uses is None else set(uses)
    moved = [(n, i) for n, i in users(tensor) if wanted is None or read_by(n, i) in wanted]
    leaves = model.is_output(tensor) and (wanted is None or GRAPH_OUTPUT in wanted)
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
    slot = next(i for i, t in enumerate(maker.outputs) if t is tensor)
    set_output(maker, slot, source)
    moving = {(id(n), i) for n, i in moved}
    for user, index in users(tensor):
        if (id(user), index) not in moving:
            set_input(user, index, source)
    build(source, tensor, graph)
    return tensor

