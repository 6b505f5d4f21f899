"""ONNX protobuf to a graphsurgeon graph, keeping everything.

graphsurgeon's own importer drops metadata, overloads, optional and sequence types, several
attribute kinds, initializers nobody reads and inputs that have an initializer. This one builds the
same `gs.Graph`, `gs.Node` and tensor objects, and attaches to each the message it was made from, so
that `exporter` can write back whatever no pass has changed:

    gs.Graph      .record        GraphRecord: header, declared constants, stray value infos
    gs.Node       .source        the NodeProto;  .owner  the graph that contains it
    gs.Tensor     .owner         the graph that declares it (inputs and initializers)
    gs.Variable   .info          its ValueInfoProto;  .seen  (dtype, shape) decoded from it
    gs.Tensor     .input_info    ValueInfoProto as graph input;  .output_info  as graph output
    gs.Constant   .overridable   an initializer the caller may replace (also a graph input)
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from onnxq.errors import InvalidModelError
from onnxq.storage.gs_objects import make_constant, make_node, make_variable
from onnxq.storage.node_index import BODY_OPS, NodeIndex
from onnxq.storage.tensors import SparseStoredValues, StoredValues, damaged, numpy_dtype

_ELEMENT_TYPES = set(helper.get_all_tensor_dtypes())
_BODY_FIELDS = {"node", "initializer", "sparse_initializer", "input", "output", "value_info"}


@dataclass
class GraphRecord:
    """The parts of a graph besides nodes, inputs and outputs."""

    header: GraphProto
    constants: list[gs.Constant] = field(default_factory=list)
    unread_at_load: set[int] = field(default_factory=set)
    stray_infos: list[ValueInfoProto] = field(default_factory=list)
    outer_outputs: dict[str, ValueInfoProto] = field(default_factory=dict)
    """This body's declarations of outputs that are tensors of an enclosing graph."""
    has_removed: bool = False
    """Whether nodes that were removed are still in the list."""
    index: NodeIndex = field(default_factory=NodeIndex)


def as_text(name: str | bytes) -> str:
    """A name unchanged; protobuf returns bytes for one that is not UTF-8, as ONNX requires."""
    if isinstance(name, bytes):
        raise damaged(f"the name {name!r} is not UTF-8")
    return name


class Scope:
    """Names visible in a graph: its own, then those of the enclosing graphs."""

    def __init__(self, proto: GraphProto, parent: Scope | None = None) -> None:
        self.own: dict[str, gs.Tensor] = {}
        self.parent = parent
        self.proto = proto
        self.infos = {info.name: info for info in proto.value_info}
        for info in proto.output:
            self.infos.setdefault(info.name, info)

    @functools.cached_property
    def promised(self) -> set[str]:
        """Every output of this graph's nodes; in an unsorted file some are used before."""
        return {name for node in self.proto.node for name in node.output}

    def make(self, name: str) -> gs.Tensor:
        """The tensor of this graph with that name, created if it is new."""
        tensor = self.own.get(name) if name else None
        if tensor is None:
            info = self.infos.get(as_text(name))
            tensor = make_variable(name) if info is None else variable_of(info)
            if name:
                self.own[name] = tensor
        return tensor

    def read(self, name: str) -> gs.Tensor:
        """The tensor that `name` refers to: of this graph, or of an enclosing one."""
        tensor = self.own.get(name)
        if tensor is not None or not name or self.parent is None:
            return self.make(name) if tensor is None else tensor
        scope: Scope | None = self.parent
        while scope is not None:
            tensor = scope.own.get(name)
            if tensor is not None:
                return tensor
            scope = scope.parent
        scope = self
        while scope is not None:
            if name in scope.promised:
                return scope.make(name)
            scope = scope.parent
        return self.make(name)


def header_of(proto: Any, body: set[str]) -> Any:
    """A copy of a message without the fields named in `body`."""
    header = type(proto)()
    if len(UnknownFieldSet(proto)):
        # Written by a newer onnx: only a copy of the whole message keeps what has no name here.
        header.CopyFrom(proto)
        for name in body:
            header.ClearField(name)
        return header
    for descriptor, value in proto.ListFields():
        if descriptor.name in body:
            continue
        if getattr(descriptor, "is_repeated", False):
            getattr(header, descriptor.name).extend(value)
        elif descriptor.message_type is not None:
            getattr(header, descriptor.name).CopyFrom(value)
        else:
            setattr(header, descriptor.name, as_text(value))
    return header


def opsets_of(proto: ModelProto) -> dict[str, int]:
    """The version of each domain that is imported."""
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        domain, version = as_text(entry.domain), entry.version
        if not 0 <= version < 2**31:
            raise InvalidModelError(
                f"domain '{domain}' has version {version}, which is not an opset"
            )
        if opsets.setdefault(domain, version) != version:
            raise InvalidModelError(f"two versions of domain '{domain}' are imported")
    return opsets


def variable_of(info: ValueInfoProto) -> gs.Variable:
    """A variable with the tensor type of `info`; other types stay in `info` only."""
    variable = make_variable(info.name)
    set_info(variable, info)
    return variable


def set_info(variable: gs.Variable, info: ValueInfoProto) -> None:
    """Give `variable` the type that `info` specifies."""
    dtype, shape = decode_type(info)
    variable.dtype = dtype
    variable.shape = shape
    variable.info = info
    variable.seen = (dtype, None if shape is None else tuple(shape))


def decode_type(info: ValueInfoProto) -> tuple[np.dtype[Any] | None, list[int | str | None] | None]:
    """Element type and shape of a tensor; None if unknown or not a tensor."""
    tensor_type = info.type.tensor_type
    if not info.type.HasField("tensor_type") or tensor_type.elem_type not in _ELEMENT_TYPES:
        return None, None
    shape: list[int | str | None] | None = None
    if tensor_type.HasField("shape"):
        shape = []
        for dim in tensor_type.shape.dim:
            kind = dim.WhichOneof("value")
            shape.append(None if kind is None else as_text(getattr(dim, kind)))
    return numpy_dtype(tensor_type.elem_type), shape


def import_graph(
    proto: GraphProto, base_dir: Path | None, overridable: bool, parent: Scope | None = None
) -> gs.Graph:
    """Build a graph; `overridable`: initializers that are also inputs can be replaced."""
    scope = Scope(proto, parent)
    # The list of nodes is filled below: the constructor would walk all of them.
    name, notes = as_text(proto.name), as_text(proto.doc_string)
    graph = gs.Graph(nodes=[], name=name, doc_string=notes)
    record = graph.record = GraphRecord(header_of(proto, _BODY_FIELDS))
    inputs = {info.name for info in proto.input}
    for stored in proto.initializer:
        constant = make_constant(stored.name, StoredValues(stored, base_dir))
        _declare(constant, graph, scope)
        if overridable and constant.name in inputs:
            constant.overridable = True
    for sparse in proto.sparse_initializer:
        values = SparseStoredValues(sparse, base_dir)
        _declare(make_constant(sparse.values.name, values), graph, scope)
    for info in proto.input:
        tensor = scope.own.get(info.name)
        if tensor is None:
            tensor = scope.own[as_text(info.name)] = variable_of(info)
            tensor.owner = graph
        tensor.input_info = info
        graph.inputs.append(tensor)
    nodes = graph.nodes
    for node_proto in proto.node:
        nodes.append(_import_node(node_proto, graph, scope, base_dir, overridable))
    for info in proto.output:
        # An output without a producer in this graph may be a name of an enclosing graph.
        result = scope.read(info.name)
        if info.name in scope.own:
            result.output_info = info
        else:
            record.outer_outputs[info.name] = info
        graph.outputs.append(result)
    declared = {i.name for i in proto.input} | {o.name for o in proto.output}
    record.stray_infos = [
        info
        for info in proto.value_info
        if info.name in declared or not isinstance(scope.own.get(info.name), gs.Variable)
    ]
    return graph


def mark_unread(graph: gs.Graph) -> None:
    """Mark what is unused at load: it was put there on purpose, and stays."""
    outputs = {id(t) for t in graph.outputs}
    record: GraphRecord = graph.record
    record.unread_at_load = {
        id(c) for c in record.constants if not c.outputs and id(c) not in outputs
    }
    for node in graph.nodes:
        for tensor in node.outputs:
            if tensor.outputs or id(tensor) in outputs:
                break
        else:
            node.unread_at_load = True
    for node in holders(graph):
        for body in bodies(node):
            mark_unread(body)


def holders(graph: gs.Graph) -> list[gs.Node]:
    """The nodes of this graph alone that may have bodies: nearly always few or none."""
    found = graph.record.index.holders(graph)
    return [node for node in found if not getattr(node, "removed", False)]


def bodies(node: gs.Node) -> Sequence[gs.Graph]:
    """The graphs in the attributes of a node (If, Loop, Scan ...)."""
    if node.op not in BODY_OPS and not node.domain:
        return ()
    found: list[gs.Graph] = []
    for value in node.attrs.values():
        first = value[0] if type(value) is list and value else value
        if type(first) not in _PLAIN and isinstance(first, gs.Graph):
            found.extend([value] if first is value else value)
    return found


_PLAIN = {int, float, str}
_BODY_KINDS = {AttributeProto.GRAPH, AttributeProto.GRAPHS}


def _declare(constant: gs.Constant, graph: gs.Graph, scope: Scope) -> None:
    as_text(constant.name)
    constant.owner = graph
    graph.record.constants.append(constant)
    scope.own[constant.name] = constant


def _import_node(
    proto: NodeProto,
    graph: gs.Graph,
    scope: Scope,
    base_dir: Path | None,
    overridable: bool,
) -> gs.Node:
    op, domain = proto.op_type, proto.domain
    attributes = proto.attribute
    if op not in BODY_OPS and not domain:
        for attribute in attributes:
            if attribute.type in _BODY_KINDS:
                raise InvalidModelError(
                    f"node '{proto.name or ', '.join(proto.output)}': attribute "
                    f"'{attribute.name}' is a graph, but {op} has no such attribute"
                )
    return make_node(
        op,
        proto.name,
        {a.name: _import_attribute(a, scope, base_dir, overridable) for a in attributes},
        [scope.read(name) for name in proto.input],
        [scope.make(name) for name in proto.output],
        domain or None,
        graph,
        proto,
    )


def _import_attribute(
    proto: AttributeProto, scope: Scope, base_dir: Path | None, overridable: bool
) -> Any:
    """The Python value of an attribute; kinds without one stay an AttributeProto."""
    if proto.ref_attr_name:
        return proto
    kind = proto.type
    read = PLAIN_VALUES.get(kind)
    if read is not None:
        return read(proto)
    if kind == AttributeProto.TENSOR:
        return gs.Constant(proto.t.name, StoredValues(proto.t, base_dir))
    if kind == AttributeProto.GRAPH:
        return import_graph(proto.g, base_dir, overridable, scope)
    if kind == AttributeProto.GRAPHS:
        return [import_graph(g, base_dir, overridable, scope) for g in proto.graphs]
    return proto


def _text(raw: bytes) -> str | bytes:
    """Text if it is UTF-8 (as the standard requires), bytes otherwise."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


PLAIN_VALUES: dict[int, Callable[[AttributeProto], Any]] = {
    AttributeProto.INT: operator.attrgetter("i"),
    AttributeProto.INTS: lambda proto: proto.ints[:],
    AttributeProto.FLOAT: operator.attrgetter("f"),
    AttributeProto.FLOATS: lambda proto: proto.floats[:],
    AttributeProto.STRING: lambda proto: _text(proto.s),
    AttributeProto.STRINGS: lambda proto: [_text(s) for s in proto.strings[:]],
}
"""Functions that read the Python value of an attribute, by its kind."""
