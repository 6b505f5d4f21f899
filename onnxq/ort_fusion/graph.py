"""A graph that onnxruntime wrote, looked at but never changed: who makes and who reads what.

Casts that onnxruntime puts around operators without a float16 kernel are looked through, so an
operator is seen between its quantizers as the model has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    defs,
    helper,
    numpy_helper,
)

from onnxq.ort_fusion.probe import Probe, source_of
from onnxq.quant.qparams import Array

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
BODY = -1
"""Input number of a read by the body of a node."""
_BODIES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


@dataclass(eq=False, slots=True)
class Step:
    """One node."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: Mapping[str, Any]
    since: int
    source: int
    """Number of the node of the model that it comes from, or -1."""

    @property
    def output(self) -> str:
        """The first output."""
        return self.outputs[0]

    def given(self, index: int) -> str:
        """Input `index`, or '' where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(frozen=True)
class _Tensor:
    type: int
    shape: list[Any] | None
    stored: TensorProto | None = None


class OrtGraph:
    """The nodes of one graph (the main one or a body) and who reads what."""

    def __init__(
        self, graph: GraphProto, opset: int, probe: Probe, outer: dict[str, _Tensor]
    ) -> None:
        self.opset = opset
        self.probe = probe
        self._tensors = outer | dict(_declared(graph))
        nodes = [node for node in graph.node if not _is_inserted_cast(node)]
        passed = {n.output[0]: n.input[0] for n in graph.node if _is_inserted_cast(n)}
        self.outputs = {_through(passed, info.name) for info in graph.output}
        self.steps: list[Step] = []
        self.maker: dict[str, Step] = {}
        self._readers: dict[str, list[tuple[Step, int]]] = {}
        self.bodies: list[OrtGraph] = []
        for node in nodes:
            step = _step(node, opset, passed)
            self.steps.append(step)
            self.maker.update((name, step) for name in step.outputs if name)
            for index, name in enumerate(step.inputs):
                if name:
                    self._readers.setdefault(name, []).append((step, index))
            for body in _bodies_of(node):
                inner = OrtGraph(body, opset, probe, self._tensors)
                self.bodies.append(inner)
                for name in inner.read_outside():
                    self._readers.setdefault(_through(passed, name), []).append((step, BODY))

    def read_outside(self) -> set[str]:
        """Tensors of other graphs that this one reads."""
        read = {*self._readers, *self.outputs}
        return {name for name in read if name not in self.maker}

    def __iter__(self) -> Iterator[Step]:
        """The nodes in order."""
        return iter(self.steps)

    def made_by(self, name: str, op: str) -> Step | None:
        """What makes tensor `name`, if it is an `op`."""
        maker = self.maker.get(name)
        return maker if maker is not None and maker.op == op else None

    def edges(self, name: str) -> list[tuple[Step, int]]:
        """Every read of tensor `name`."""
        return self._readers.get(name, [])

    def only_reader(self, name: str) -> Step | None:
        """The one node that reads `name`, if that is its only use."""
        uses = self.edges(name)
        if len(uses) != 1 or name in self.outputs:
            return None
        ((step, index),) = uses
        return None if index == BODY else step

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
        shape = self.shape(name)
        return shape is not None and (not shape or shape == [1])

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


def _step(node: NodeProto, opset: int, passed: Mapping[str, str]) -> Step:
    domain = node.domain
    if domain == "ai.onnx" or node.op_type in (QUANTIZE, DEQUANTIZE):
        domain = ""  # onnxruntime's own pairs are fused like the standard ones
    return Step(
        f"{domain}::{node.op_type}" if domain else node.op_type,
        [_through(passed, name) for name in node.input],
        list(node.output),
        {a.name: _attribute(a) for a in node.attribute if a.type not in _BODIES},
        _since(node.op_type, domain, opset),
        source_of(node.name),
    )


def _attribute(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _bodies_of(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type in _BODIES:
            yield from (attribute.g,) if attribute.HasField("g") else attribute.graphs


def _is_inserted_cast(node: NodeProto) -> bool:
    return node.op_type == "Cast" and source_of(node.name) < 0


def _through(passed: Mapping[str, str], name: str) -> str:
    while name in passed:
        name = passed[name]
    return name


def _since(op: str, domain: str, opset: int) -> int:
    if domain or not defs.has(op):
        return 1
    try:
        return int(defs.get_schema(op, opset, "").since_version)
    except defs.SchemaError:
        return 1
