"""A graph that onnxruntime wrote, read-only: its operations and how tensors connect them.

Casts that onnxruntime inserts around operators without a float16 kernel are skipped, so an
operator is seen between its quantizers, as in the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from onnxq.ort_fusion.probe import Probe, bodies, op_of, source_of
from onnxq.quant.qparams import Array

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


@dataclass(eq=False, slots=True)
class Operation:
    """One node."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: Mapping[str, Any]
    source: int
    """Number of the node of the model that it comes from, or -1."""
    cast: bool
    """Whether onnxruntime inserted a Cast before or after it."""

    @property
    def output(self) -> str:
        """The first output."""
        return self.outputs[0]

    def given(self, index: int) -> str:
        """Input `index`, or '' if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(frozen=True)
class _Tensor:
    type: int
    shape: list[Any] | None
    stored: TensorProto | None = None


class OrtGraph:
    """The operations of one graph (the main one or a body)."""

    def __init__(
        self, graph: GraphProto, opset: int, probe: Probe, outer: dict[str, _Tensor]
    ) -> None:
        self.opset = opset
        self.probe = probe
        self._tensors = outer | dict(_declared(graph))
        passed = {n.output[0]: n.input[0] for n in graph.node if _is_inserted_cast(n)}
        self.outputs = {_through(passed, info.name) for info in graph.output}
        self.operations: list[Operation] = []
        self.producer: dict[str, Operation] = {}
        self._consumers: dict[str, list[Operation]] = {}
        self.bodies: list[OrtGraph] = []
        for node in graph.node:
            if _is_inserted_cast(node):
                continue
            operation = _operation(node, passed)
            self.operations.append(operation)
            self.producer.update((name, operation) for name in operation.outputs if name)
            read = [name for name in operation.inputs if name]
            for body in bodies(node):
                inner = OrtGraph(body, opset, probe, self._tensors)
                self.bodies.append(inner)
                read += (_through(passed, name) for name in inner.read_outside())
            for name in read:
                self._consumers.setdefault(name, []).append(operation)

    def read_outside(self) -> set[str]:
        """Tensors of other graphs that this one reads."""
        return {*self._consumers, *self.outputs} - self.producer.keys()

    def made_by(self, name: str, op: str) -> Operation | None:
        """The producer of tensor `name`, if it is an `op`."""
        found = self.producer.get(name)
        return found if found is not None and found.op == op else None

    def consumers(self, name: str) -> list[Operation]:
        """The consumers of tensor `name`, once per use; a body counts as the node that holds it."""
        return self._consumers.get(name, [])

    def only_consumer(self, name: str) -> Operation | None:
        """The consumer of `name`, if that is its only use."""
        uses = self.consumers(name)
        return uses[0] if len(uses) == 1 and name not in self.outputs else None

    def is_constant(self, name: str) -> bool:
        """Whether the value of `name` is part of the model."""
        return name in self.probe.large or self._stored(name) is not None

    def value(self, name: str) -> Array | None:
        """The value of a small constant."""
        stored = self._stored(name)
        return None if stored is None else numpy_helper.to_array(stored)

    def _stored(self, name: str) -> TensorProto | None:
        tensor = self._tensors.get(name)
        return None if tensor is None else tensor.stored

    def shape(self, name: str) -> list[Any] | None:
        """The shape of a tensor, as far as it is known."""
        tensor = self._tensors.get(name)
        return None if tensor is None else tensor.shape

    def is_scalar(self, name: str) -> bool:
        """Whether `name` has one element: onnxruntime takes a vector of one for a scalar."""
        return self.shape(name) in ([], [1])

    def dtype(self, name: str) -> np.dtype[Any] | None:
        """The element type of a tensor."""
        tensor = self._tensors.get(name)
        return helper.tensor_dtype_to_np_dtype(tensor.type) if tensor and tensor.type else None


def graphs_of(model: ModelProto, probe: Probe) -> list[OrtGraph]:
    """The main graph and every body."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    found = [OrtGraph(model.graph, opsets.get("", opsets.get("ai.onnx", 1)), probe, {})]
    for graph in found:
        found += graph.bodies
    return found


def _declared(graph: GraphProto) -> Iterator[tuple[str, _Tensor]]:
    for info in (*graph.value_info, *graph.output, *graph.input):
        kind = info.type.tensor_type
        known = kind.HasField("shape")
        dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        yield info.name, _Tensor(kind.elem_type, dims if known else None)
    replaceable = {info.name for info in graph.input}
    for tensor in graph.initializer:
        kept = None if tensor.name in replaceable else tensor
        yield tensor.name, _Tensor(tensor.data_type, list(tensor.dims), kept)


def _operation(node: NodeProto, passed: Mapping[str, str]) -> Operation:
    # onnxruntime fuses its own quantizers like the standard ones.
    is_pair = node.op_type in (QUANTIZE, DEQUANTIZE)
    return Operation(
        node.op_type if is_pair else op_of(node),
        [_through(passed, name) for name in node.input],
        list(node.output),
        {a.name: helper.get_attribute_value(a) for a in node.attribute},
        source_of(node.name),
        not {*node.input, *node.output}.isdisjoint((*passed, *passed.values())),
    )


def _is_inserted_cast(node: NodeProto) -> bool:
    return node.op_type == "Cast" and source_of(node.name) < 0


def _through(passed: Mapping[str, str], name: str) -> str:
    while name in passed:
        name = passed[name]
    return name
