"""Runs models that contain integer operators, exactly.

onnxruntime's 8-bit kernels add pairs of u8 × s8 products in 16 bits on a CPU without VNNI, at
every optimisation level, so its sessions are no reference for QLinearConv and similar operators.
Here `integer_kernels` computes the integer operators of the main graph, and onnxruntime's reference
session the nodes between them, as many at a time as possible.

onnxruntime also computes integer operators inside bodies (If, Loop), with the node that holds them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from onnxq.errors import VerifyError
from onnxq.operators.integer_operators import SUMS, find
from onnxq.quant.qparams import Array
from onnxq.running.integer_kernels import compute
from onnxq.storage.node_order import ordered, reads
from onnxq.storage.tensors import StoredValues

if TYPE_CHECKING:
    from onnxq.running.sessions import OpenModel, Session


def is_integer_operator(node: onnx.NodeProto) -> bool:
    """Whether `integer_kernels` computes this node."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if node.op_type in SUMS:
        return not domain
    return find(domain, node.op_type) is not None


def holds_integer_operators(model: onnx.ModelProto) -> bool:
    """Whether the main graph has an operator that `integer_kernels` computes."""
    return any(map(is_integer_operator, model.graph.node))


@dataclass
class _Segment:
    """Nodes between integer operators, run by onnxruntime in one session."""

    nodes: list[onnx.NodeProto]
    reads: list[str] = field(default_factory=list)
    makes: list[str] = field(default_factory=list)
    sessions: dict[tuple[int, ...], Session] = field(default_factory=dict)
    """Sessions, by the lengths of their int64 vector inputs."""


class IntegerModel:
    """A model split into integer operators and the segments between them."""

    def __init__(
        self,
        opened: OpenModel,
        wanted: Iterable[str],
        reference: Callable[[onnx.ModelProto], Session],
    ) -> None:
        self._reference = reference
        self._opened = opened  # holds the folder of spilled weights
        self._model = opened.proto
        graph = opened.proto.graph
        self._constants = {t.name: t for t in graph.initializer}
        self._loaded: dict[str, Array] = {}
        self._parts = list(_parts(ordered(graph)))
        self._connect({*wanted, *(o.name for o in graph.output)})

    def _connect(self, wanted: set[str]) -> None:
        """Find the tensors that each segment takes from others and computes for others."""
        needed = set(wanted)
        for part in reversed(self._parts):
            if not isinstance(part, _Segment):
                needed.update(part.input)
                continue
            made = [name for node in part.nodes for name in node.output if name]
            own = set(made)
            part.makes = [name for name in made if name in needed]
            read = dict.fromkeys(n for node in part.nodes for n in reads(node) if n)
            part.reads = [name for name in read if name not in own]
            needed.update(part.reads)

    def run(self, feeds: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
        """The tensors named in `wanted`."""
        values: dict[str, Array] = dict(feeds)
        for part in self._parts:
            if isinstance(part, _Segment):
                if part.makes:
                    values.update(self._run(part, values))
                continue
            given = [self._value(name, values, part) if name else None for name in part.input]
            attributes = {a.name: helper.get_attribute_value(a) for a in part.attribute}
            values[part.output[0]] = compute(part.op_type, part.domain, given, attributes)
        return {name: self._value(name, values) for name in wanted}

    def _value(
        self, name: str, values: Mapping[str, Array], consumer: onnx.NodeProto | None = None
    ) -> Array:
        if name in values:
            return values[name]
        if name not in self._constants:
            who = (
                "the graph" if consumer is None else f"node '{consumer.name or consumer.output[0]}'"
            )
            raise VerifyError(
                f"tensor '{name}', read by {who}, is neither given nor computed",
                fix="give a value for every input",
            )
        if name not in self._loaded:
            self._loaded[name] = StoredValues(self._constants[name], self._opened.folder).load()
        return self._loaded[name]

    def _run(self, segment: _Segment, values: Mapping[str, Array]) -> dict[str, Array]:
        held = {
            name: self._constants[name]
            for name in segment.reads
            if name in self._constants
            and name not in values
            and self._constants[name].data_location != onnx.TensorProto.EXTERNAL
        }
        # Other names are local to bodies in the segment.
        constants = self._constants.keys() - held.keys()
        outer = [name for name in segment.reads if name in values or name in constants]
        feeds = {name: self._value(name, values) for name in outer}
        lengths = tuple(value.size for value in feeds.values() if _may_be_a_shape(value))
        if lengths not in segment.sessions:
            segment.sessions[lengths] = self._session(segment, feeds, list(held.values()))
        return segment.sessions[lengths].run(feeds)

    def _session(
        self, segment: _Segment, feeds: Mapping[str, Array], constants: list[onnx.TensorProto]
    ) -> Session:
        """onnxruntime's reference session of the nodes of one segment."""
        small = onnx.ModelProto(ir_version=max(self._model.ir_version, 4))
        small.opset_import.extend(self._model.opset_import)
        small.functions.extend(self._model.functions)
        small.graph.name = f"{self._model.graph.name} from '{segment.nodes[0].output[0]}' on"
        small.graph.node.extend(segment.nodes)
        small.graph.initializer.extend(constants)
        for name, value in feeds.items():
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            # onnxruntime reads an unknown length of the sizes of a Resize as 0.
            shape: list[Any] = [value.size] if _may_be_a_shape(value) else [None] * value.ndim
            small.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
        small.graph.output.extend(onnx.ValueInfoProto(name=name) for name in segment.makes)
        return self._reference(small)


def _may_be_a_shape(value: Array) -> bool:
    return value.ndim == 1 and value.dtype == np.int64


def _parts(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto | _Segment]:
    """Integer operators one by one; runs of other nodes together."""
    for integer, run in itertools.groupby(nodes, is_integer_operator):
        found = list(run)
        yield from found if integer else [_Segment(found)]
