"""Copies of graphs whose nodes and tensors can be edited freely; values of constants are shared."""

from __future__ import annotations

from typing import Any

import onnx_graphsurgeon as gs

from onnxq.storage.exporter import live_nodes
from onnxq.storage.gs_objects import make_constant, make_node, make_variable
from onnxq.storage.importer import GraphRecord, header_of

_CARRIED = {"info", "seen", "input_info", "output_info", "body_output"}


def clone_tensor(tensor: gs.Tensor, tensors: dict[int, gs.Tensor]) -> gs.Tensor:
    """The copy of `tensor`, made once; `tensors` contains the copies by id of the original."""
    twin = tensors.get(id(tensor))
    if twin is None:
        if isinstance(tensor, gs.Constant):
            twin = make_constant(tensor.name, tensor._values)
            if getattr(tensor, "overridable", False):
                twin.overridable = True
        else:
            shape = None if tensor.shape is None else list(tensor.shape)
            twin = make_variable(tensor.name, tensor.dtype, shape, tensor.type)
        fields = tensor.__dict__
        for name in _CARRIED & fields.keys():
            setattr(twin, name, fields[name])
        tensors[id(tensor)] = twin
    return twin


def clone_graph(graph: gs.Graph, tensors: dict[int, gs.Tensor]) -> gs.Graph:
    """A copy of `graph` and of the bodies in it."""

    def twins(originals: list[gs.Tensor]) -> list[gs.Tensor]:
        return [clone_tensor(t, tensors) for t in originals]

    record: GraphRecord = graph.record
    twin = gs.Graph(nodes=[], name=graph.name, doc_string=graph.doc_string)
    twin.record = GraphRecord(
        header_of(record.header, set()),
        twins(record.constants),
        {id(tensors[i]) for i in record.unread_at_load if i in tensors},
        list(record.stray_infos),
        dict(record.outer_outputs),
    )
    twin.inputs = twins(graph.inputs)
    for tensor in (*twin.inputs, *twin.record.constants):
        tensor.owner = twin
    nodes = twin.nodes
    for node in live_nodes(graph):
        attrs = {k: _clone_attribute(v, tensors) for k, v in node.attrs.items()}
        inputs, outputs = twins(node.inputs), twins(node.outputs)
        source = getattr(node, "source", None)
        copy = make_node(node.op, node.name, attrs, inputs, outputs, node.domain, twin, source)
        if getattr(node, "unread_at_load", False):
            copy.unread_at_load = True
        nodes.append(copy)
    twin.outputs = twins(graph.outputs)
    return twin


def _clone_attribute(value: Any, tensors: dict[int, gs.Tensor]) -> Any:
    if isinstance(value, gs.Graph):
        return clone_graph(value, tensors)
    if isinstance(value, gs.Constant):
        return make_constant(value.name, value._values)
    if type(value) is list:
        return [_clone_attribute(v, tensors) for v in value]
    return value
