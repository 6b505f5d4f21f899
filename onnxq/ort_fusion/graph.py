"""A graph as onnxruntime's optimiser sees it: names and edges, light enough to be rewritten.

Nothing is computed on it. It exists to follow what the optimiser does to a quantized model, so
that `ort_fusion` can tell which operators end up in integer kernels. Constants keep their values
where they are and are read when a rule asks for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import defs

from onnxq.graph import Model, domain_of
from onnxq.graph.constants import array, is_constant
from onnxq.quant.qparams import Array
from onnxq.storage.exporter import sorted_nodes
from onnxq.storage.importer import bodies

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
BODY = -1
"""Input number of a read by the body of a node."""


@dataclass(eq=False, slots=True)
class Step:
    """One node. `key` is the tensor that the node of the model makes; '' for a node made here."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    since: int = 1
    key: str = ""
    also: list[str] = field(default_factory=list)
    """Keys of nodes that were merged into this one."""
    body_reads: list[str] = field(default_factory=list)
    gone: bool = False

    @property
    def output(self) -> str:
        """The first output."""
        return self.outputs[0]

    def given(self, index: int) -> str:
        """Input `index`, or '' where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def inputs_given(self) -> int:
        """How many inputs there are, without those left out."""
        return sum(bool(name) for name in self.inputs)


@dataclass(frozen=True)
class Refusal:
    """Where onnxruntime fails on a model that is valid."""

    output: str
    """The first tensor that the node makes."""
    reason: str
    loads: bool | None = False
    """Whether it only fails when it runs, or computes something else; None: that depends on the
    numbers."""
    fix: str = "use uint8 activations with one scalar scale per tensor, at an opset from 13 to 20"


class OrtGraph:
    """The nodes of one graph (the main one or a body) and who reads what."""

    def __init__(
        self, graph: gs.Graph, opsets: dict[str, int], tensors: dict[str, gs.Tensor]
    ) -> None:
        self.tensors = tensors
        self.opset = opsets.get("", opsets.get("ai.onnx", 1))
        self.outputs = {t.name for t in graph.outputs}
        self.steps: list[Step] = []
        self.maker: dict[str, Step] = {}
        self._readers: dict[str, dict[tuple[int, int], Step]] = {}
        self.types: dict[str, np.dtype[Any]] = {}
        """Types of tensors that the rewriting made or changed."""
        self.folded: set[str] = set()
        """Tensors that became constants: what quantizes a constant is computed at load."""
        self.refusals: list[Refusal] = []
        self._made = 0
        for node in sorted_nodes(graph):
            tensors.update((t.name, t) for t in (*node.inputs, *node.outputs) if t.name)
            if node.op != "Constant" or domain_of(node):
                self._take(node)
        for step in self.steps:
            if step.op == QUANTIZE and self.dtype(step.output) is None:
                # onnx does not know what onnxruntime's own Q makes.
                zero = step.given(2)
                found = self.dtype(zero) if zero else np.dtype(np.uint8)
                if found is not None:
                    self.types[step.output] = found

    def _take(self, node: gs.Node) -> None:
        domain = domain_of(node)
        if domain == "com.microsoft" and node.op in (QUANTIZE, DEQUANTIZE):
            domain = ""  # onnxruntime's own pairs are fused like the standard ones
        self.add(
            Step(
                f"{domain}::{node.op}" if domain else node.op,
                [t.name for t in node.inputs],
                [t.name for t in node.outputs],
                {k: v for k, v in node.attrs.items() if not isinstance(v, gs.Graph)},
                _since(node.op, domain, self.opset),
                next((t.name for t in node.outputs if t.name), node.name),
                body_reads=sorted(_read_by_bodies(node)),
            )
        )

    # -- looking ----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Step]:
        """The nodes that are left; those made on the way come last."""
        return (step for step in list(self.steps) if not step.gone)

    def made_by(self, name: str, op: str) -> Step | None:
        """What makes tensor `name`, if it is an `op`."""
        maker = self.maker.get(name)
        return maker if maker is not None and maker.op == op else None

    def edges(self, name: str) -> list[tuple[Step, int]]:
        """Every read of tensor `name`."""
        return [(step, index) for (_, index), step in self._readers.get(name, {}).items()]

    def only_reader(self, name: str) -> Step | None:
        """The one node that reads `name`, if that is its only use."""
        uses = self._readers.get(name, {})
        if len(uses) != 1 or name in self.outputs:
            return None
        ((_, index), step) = next(iter(uses.items()))
        return None if index == BODY else step

    def is_constant(self, name: str) -> bool:
        """Whether the value of `name` is part of the model."""
        return name in self.folded or (
            name in self.tensors and name not in self.maker and is_constant(self.tensors[name])
        )

    def is_initializer(self, name: str) -> bool:
        """Whether `name` is stored in the model, even if the caller may replace it."""
        return self.is_constant(name) or (
            name not in self.maker and isinstance(self.tensors.get(name), gs.Constant)
        )

    def value(self, name: str) -> Array | None:
        """The value of a constant of the model."""
        if name in self.maker or name not in self.tensors or name in self.folded:
            return None
        return array(self.tensors[name])

    def shape(self, name: str) -> list[Any] | None:
        """The shape of a tensor, as far as it is known."""
        tensor = self.tensors.get(name)
        if tensor is None or tensor.shape is None:
            return None
        return list(tensor.shape)

    def is_scalar(self, name: str) -> bool:
        """Whether `name` has one element: onnxruntime takes a vector of one for a scalar."""
        shape = self.shape(name)
        return shape is not None and (not shape or shape == [1])

    def dtype(self, name: str) -> np.dtype[Any] | None:
        """The element type of a tensor."""
        if name in self.types:
            return self.types[name]
        tensor = self.tensors.get(name)
        return None if tensor is None or tensor.dtype is None else np.dtype(tensor.dtype)

    # -- changing ---------------------------------------------------------------------------

    def fresh(self) -> str:
        """A name that no tensor has."""
        self._made += 1
        return f"\0{self._made}"

    def add(self, step: Step) -> Step:
        """Put a node into the graph."""
        self.steps.append(step)
        for name in step.outputs:
            if name:
                self.maker[name] = step
        for name, index in _reads(step):
            self._readers.setdefault(name, {})[id(step), index] = step
        return step

    def remove(self, step: Step) -> None:
        """Take a node out; its outputs must have no readers, or a new maker."""
        step.gone = True
        for name, index in _reads(step):
            self._readers[name].pop((id(step), index), None)
        for name in step.outputs:
            if self.maker.get(name) is step:
                del self.maker[name]

    def set_input(self, step: Step, index: int, name: str) -> None:
        """Let `step` read `name` at `index`."""
        old = step.given(index)
        if old:
            self._readers[old].pop((id(step), index), None)
        step.inputs += [""] * (index + 1 - len(step.inputs))
        step.inputs[index] = name
        self._readers.setdefault(name, {})[id(step), index] = step

    def set_output(self, step: Step, name: str) -> None:
        """Let the first output of `step` be `name`."""
        if self.maker.get(step.output) is step:
            del self.maker[step.output]
        step.outputs[0] = name
        self.maker[name] = step

    def bypass(self, step: Step) -> bool:
        """Remove a node that passes its first input on; False where names forbid it."""
        x, y = step.inputs[0], step.output
        if any(index == BODY for _, index in self.edges(y)):
            return False
        if y in self.outputs:
            maker = self.maker.get(x)
            if maker is None or x in self.outputs or self.only_reader(x) is not step:
                return False
            self.remove(step)
            maker.outputs[maker.outputs.index(x)] = y
            del self.maker[x]
            self.maker[y] = maker
            return True
        for reader, index in list(self.edges(y)):
            self.set_input(reader, index, x)
        self.remove(step)
        return True


def graphs_of(model: Model) -> list[OrtGraph]:
    """The main graph and every body, in onnxruntime's view."""
    tensors: dict[str, gs.Tensor] = {}
    for graph in model.graphs():
        for tensor in (*graph.inputs, *graph.outputs, *graph.record.constants):
            tensors[tensor.name] = tensor
    return [OrtGraph(graph, model.opsets, tensors) for graph in model.graphs()]


def _reads(step: Step) -> Iterable[tuple[str, int]]:
    yield from ((name, i) for i, name in enumerate(step.inputs) if name)
    yield from ((name, BODY) for name in step.body_reads)


def _read_by_bodies(node: gs.Node) -> set[str]:
    """Tensors of other graphs that the bodies of a node read."""
    read: set[str] = set()
    stack = list(bodies(node)) if node.attrs else []
    while stack:
        body = stack.pop()
        own = {t.name for n in body.nodes for t in n.outputs} | {t.name for t in body.inputs}
        for inner in body.nodes:
            read |= {t.name for t in inner.inputs if t.name and t.name not in own}
            stack += bodies(inner) if inner.attrs else []
        read |= {t.name for t in body.outputs if t.name not in own}
    return read


def _since(op: str, domain: str, opset: int) -> int:
    if domain or not defs.has(op):
        return 1
    try:
        return int(defs.get_schema(op, opset, "").since_version)
    except defs.SchemaError:
        return 1
