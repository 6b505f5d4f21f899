"""A graphsurgeon graph to ONNX protobuf; unchanged parts are copied from their source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from onnxq.errors import InvalidModelError, PassError
from onnxq.storage.importer import PLAIN_VALUES, GraphRecord, bodies
from onnxq.storage.node_index import BODY_OPS
from onnxq.storage.tensors import SparseStoredValues

ConstantWriter = Callable[[gs.Constant], TensorProto]


def export_graph(
    graph: gs.Graph,
    proto: GraphProto,
    write: ConstantWriter,
    extra: Iterable[gs.Constant] = (),
) -> None:
    """Write `graph` to `proto`; `write` makes each initializer, `extra` ones are from passes."""
    record: GraphRecord = graph.record
    proto.CopyFrom(record.header)
    proto.name = graph.name
    if graph.doc_string:
        proto.doc_string = graph.doc_string
    nodes = proto.node
    for node in sorted_nodes(graph):
        _export_node(node, nodes.add(), write)
    proto.input.extend(_info(t, "input_info") for t in graph.inputs)
    outer = record.outer_outputs
    proto.output.extend(outer.get(t.name) or _info(t, "output_info") for t in graph.outputs)
    for constant in kept_constants(graph):
        if isinstance(constant._values, SparseStoredValues):
            proto.sparse_initializer.append(constant._values.sparse)
            proto.sparse_initializer[-1].values.name = constant.name
        else:
            proto.initializer.append(write(constant))
    proto.initializer.extend(map(write, extra))
    _export_value_infos(graph, proto)


def is_read(tensor: gs.Tensor) -> bool:
    """Whether a node that is still in the graph reads `tensor`."""
    for node in tensor.outputs:  # noqa: SIM110 - any() takes twice as long, for every tensor
        if not getattr(node, "removed", False):
            return True
    return False


def live_nodes(graph: gs.Graph) -> list[gs.Node]:
    """The nodes of this graph alone that no pass has removed."""
    if not graph.record.has_removed:
        return list(graph.nodes)
    return [n for n in graph.nodes if not getattr(n, "removed", False)]


def nodes_with_bodies(graph: gs.Graph) -> Iterator[gs.Node]:
    """Nodes, producers first; a body comes before the node that contains it."""
    for node in sorted_nodes(graph):
        for body in bodies(node):
            yield from nodes_with_bodies(body)
        yield node


def sorted_nodes(graph: gs.Graph) -> list[gs.Node]:
    """Nodes, producers first, otherwise in the given order.

    The search goes depth first from each node in turn, so a sorted graph keeps its order and a node
    inserted at the end moves right before its first consumer. It is iterative: graphs are deeper
    than Python's stack.
    """
    nodes = live_nodes(graph)
    waiting = {id(n) for n in nodes}
    open_: set[int] = set()
    order: list[gs.Node] = []
    for root in nodes:
        if id(root) not in waiting:
            continue
        if _is_ready(root, waiting):
            waiting.discard(id(root))
            order.append(root)
            continue
        stack = [(root, iter(_dependencies(root, waiting)))]
        open_.add(id(root))
        while stack:
            node, pending = stack[-1]
            for needed in pending:
                key = id(needed)
                if key not in waiting:
                    continue
                if key in open_:
                    raise InvalidModelError(
                        f"node {describe(needed)} depends on its own output (cycle)"
                    )
                open_.add(key)
                stack.append((needed, iter(_dependencies(needed, waiting))))
                break
            else:
                stack.pop()
                open_.discard(id(node))
                waiting.discard(id(node))
                order.append(node)
    return order


def describe(node: gs.Node) -> str:
    """A node in words: its name or, without one, its outputs."""
    if node.name:
        return f"'{node.name}' ({node.op})"
    outputs = ", ".join(f"'{t.name}'" for t in node.outputs if t.name)
    return f"({node.op} producing {outputs})"


def _is_ready(node: gs.Node, waiting: set[int]) -> bool:
    """Whether nothing that must come before `node` is `waiting`."""
    for tensor in node.inputs:
        if isinstance(tensor, gs.Variable):  # looking for a constant's producers costs time
            for producer in tensor.inputs:
                if id(producer) in waiting:
                    return False
    return not (node.op in BODY_OPS or node.domain) or not _dependencies(node, waiting)


def _dependencies(node: gs.Node, waiting: set[int]) -> list[gs.Node]:
    """Nodes among those `waiting` that must come before `node` and its bodies."""
    found = []
    for tensor in node.inputs:
        for producer in tensor.inputs:
            if id(producer) in waiting:
                found.append(producer)  # noqa: PERF401 - a call less than a comprehension
    for body in bodies(node):
        for inner in live_nodes(body):
            found += _dependencies(inner, waiting)
        found += [p for tensor in body.outputs for p in tensor.inputs if id(p) in waiting]
    return found


def _export_node(node: gs.Node, proto: NodeProto, write: ConstantWriter) -> None:
    source: NodeProto | None = getattr(node, "source", None)
    inputs = [t.name for t in node.inputs]
    outputs = [t.name for t in node.outputs]
    if source is None:
        proto.op_type = node.op
        proto.name = node.name
        proto.input.extend(inputs)
        proto.output.extend(outputs)
        proto.attribute.extend(_export_attribute(k, v, write, node) for k, v in node.attrs.items())
        if node.domain:
            proto.domain = node.domain
        return
    proto.CopyFrom(source)
    if proto.op_type != node.op:
        proto.op_type = node.op
        proto.ClearField("overload")  # it distinguishes functions of the old name
    if proto.name != node.name:
        proto.name = node.name
    if proto.domain != (node.domain or ""):
        proto.domain = node.domain or ""
    if proto.input != inputs:
        proto.input[:] = inputs
    if proto.output != outputs:
        proto.output[:] = outputs
    known = {a.name: a for a in proto.attribute}
    if known or node.attrs:
        if known.keys() == node.attrs.keys():
            for name, value in node.attrs.items():
                if not _unchanged(known[name], value):
                    new = _export_attribute(name, value, write, node, known[name])
                    known[name].CopyFrom(new)
        else:
            attributes = [
                known[k]
                if k in known and _unchanged(known[k], v)
                else _export_attribute(k, v, write, node, known.get(k))
                for k, v in node.attrs.items()
            ]
            kept = NodeProto(attribute=attributes)
            del proto.attribute[:]
            proto.attribute.extend(kept.attribute)


def _unchanged(proto: AttributeProto, value: Any) -> bool:
    """Whether `value` is still what the importer made of `proto`."""
    if isinstance(value, AttributeProto):
        return bool(value == proto)
    read = PLAIN_VALUES.get(proto.type)
    if read is None:
        return False
    old = read(proto)
    return bool(old == value) or bool(old != old and value != value)  # NaN stays NaN


def _export_attribute(
    name: str,
    value: Any,
    write: ConstantWriter,
    node: gs.Node,
    old: AttributeProto | None = None,
) -> AttributeProto:
    if type(value) is int and (old is None or not old.doc_string):
        return AttributeProto(name=name, type=AttributeProto.INT, i=value)
    if isinstance(value, AttributeProto):
        return value
    if isinstance(value, gs.Constant):
        proto = AttributeProto(name=name, type=AttributeProto.TENSOR, t=write(value))
    elif isinstance(value, gs.Graph):
        proto = AttributeProto(name=name, type=AttributeProto.GRAPH)
        export_graph(value, proto.g, write)
    elif type(value) is list and value and isinstance(value[0], gs.Graph):
        proto = AttributeProto(name=name, type=AttributeProto.GRAPHS)
        for body in value:
            export_graph(body, proto.graphs.add(), write)
    elif type(value) is list and not value:
        if old is None:
            raise PassError(
                f"node {describe(node)}: attribute '{name}' is an empty list of unknown type",
                fix="give it as an onnx.AttributeProto, which specifies the type",
            )
        proto = AttributeProto(name=name, type=old.type)
    else:
        proto = helper.make_attribute(name, value)
    if old is not None and old.HasField("doc_string"):
        proto.doc_string = old.doc_string
    return proto


def kept_constants(graph: gs.Graph) -> list[gs.Constant]:
    """The declared constants without those whose last consumer is gone.

    `Model.refresh` marks outer constants that a body returns directly as `body_output`.
    """
    record: GraphRecord = graph.record
    wanted = {id(t) for t in graph.outputs} | {id(t) for t in graph.inputs}
    wanted |= record.unread_at_load
    return [
        c
        for c in record.constants
        if id(c) in wanted or is_read(c) or getattr(c, "body_output", False)
    ]


def _export_value_infos(graph: gs.Graph, proto: GraphProto) -> None:
    declared = {id(t) for t in graph.inputs} | {id(t) for t in graph.outputs}
    for node in live_nodes(graph):
        for tensor in node.outputs:
            if id(tensor) in declared or not tensor.name or isinstance(tensor, gs.Constant):
                continue
            if tensor.dtype is not None or getattr(tensor, "info", None) is not None:
                proto.value_info.append(_info(tensor, "info"))
    dropped = {c.name for c in graph.record.constants} - {t.name for t in proto.initializer}
    dropped -= {t.values.name for t in proto.sparse_initializer}
    proto.value_info.extend(i for i in graph.record.stray_infos if i.name not in dropped)


def _info(tensor: gs.Tensor, kind: str) -> ValueInfoProto:
    """The ValueInfoProto of `tensor` in a role: as found, unless its type changed."""
    info: ValueInfoProto | None = getattr(tensor, kind, None)
    shape = None if tensor.shape is None else tuple(tensor.shape)
    fresh = isinstance(tensor, gs.Variable) and (tensor.dtype, shape) != getattr(
        tensor, "seen", (None, None)
    )
    if info is not None and not fresh:
        if info.name == tensor.name:
            return info
        renamed = ValueInfoProto()
        renamed.CopyFrom(info)
        renamed.name = tensor.name
        return renamed
    if tensor.dtype is None:
        return ValueInfoProto(name=tensor.name)
    elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    return helper.make_tensor_value_info(tensor.name, elem_type, tensor.shape)
