"""Compute what depends only on constants once, here, instead of at every run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.edit import op_name
from onnxq.folding.to_initializers import freeze
from onnxq.graph import Model, domain_of
from onnxq.operators.traits import DEQUANTIZE, QUANTIZE
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array
from onnxq.running.constant_evaluation import Evaluator, known_values
from onnxq.storage.exporter import sorted_nodes
from onnxq.storage.importer import bodies

_QUANTIZATION = {
    *(*QUANTIZE, *DEQUANTIZE, *QUANTIZERS, "DynamicQuantizeLinear", "QLinearConv"),
    *("QLinearMatMul", "ConvInteger", "MatMulInteger"),
}
_RANDOM = {
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Bernoulli", "Multinomial", "Dropout"),
}
_NOT_TENSORS = {"SequenceConstruct", "SplitToSequence", "Optional"}
_COUNTED_AT_RUN_TIME = {"NonZero", "Unique", "Compress", "NonMaxSuppression"}
"""The size of their outputs depends on values, but hardly exceeds that of their inputs."""

_SPELLED_OUT = "a Round of constants may be part of a composed quantizer"


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace nodes whose inputs are all constant by their result.

    onnxruntime computes the results, so they are bit for bit those of the runtime. Quantization
    is never computed away, nor are nodes that lead to or follow a Round of constants: they may be
    a composed quantizer. The Shape of a tensor of fixed size counts as constant.

    Attributes:
        max_bytes: a result larger than this stays in the graph unless its inputs are as large.
    """

    name: ClassVar[str] = "fold-constants"
    exact: ClassVar[bool] = True

    max_bytes: int = 16 << 20

    def run(self, model: Model, trace: Trace) -> None:
        shapes, pending, lost = _candidates(model, trace)
        folding = _Folding(Evaluator(model), trace, self.max_bytes, lost)
        values = folding.evaluator.values
        for node, value in shapes:
            values[id(node.outputs[0])] = value
        folded = [node for node, _ in shapes]
        while pending:
            ready, pending = folding.choose(pending)
            if not ready:
                for node in pending:
                    trace.skip(node, "the size of its result is unknown before it runs")
                break
            folded += folding.compute(ready)
        gone = {id(node) for node in folded}
        needed = {
            id(tensor): values[id(tensor)]
            for node in folded
            for tensor in node.outputs
            if model.is_output(tensor) or any(id(r) not in gone for r in tensor.outputs)
        }
        for node in folded:
            trace.rewrote(node)
        freeze(model, folded, needed)


@dataclass
class _Folding:
    """Computes candidates in rounds: some sizes are known only after other results are."""

    evaluator: Evaluator
    trace: Trace
    max_bytes: int
    lost: set[int]
    """Outputs (by `id`) of candidates that stay in the graph after all."""

    def decline(self, node: gs.Node, reason: str) -> None:
        self.trace.skip(node, reason)
        self.lost.update(id(t) for t in node.outputs)

    def kept(self, nodes: Iterable[gs.Node]) -> Iterator[gs.Node]:
        """Those of `nodes` whose inputs are not lost; the others are declined."""
        for node in nodes:
            missing = next((t for t in node.inputs if id(t) in self.lost), None)
            if missing is None:
                yield node
            else:
                self.decline(node, f"'{missing.name}' is not folded")

    def choose(self, pending: list[gs.Node]) -> tuple[list[gs.Node], list[gs.Node]]:
        """Nodes to compute now, and nodes to consider again in the next round."""
        nodes = list(self.kept(pending))
        sizes = self.evaluator.sizes(nodes)
        now: list[gs.Node] = []
        later: list[gs.Node] = []
        waiting: set[int] = set()
        for node in self.kept(nodes):
            results = [t for t in node.outputs if t.name]
            size = sum(sizes.get(id(t), 0) for t in results)
            known = node.op in _COUNTED_AT_RUN_TIME or all(id(t) in sizes for t in results)
            if not known or any(id(t) in waiting for t in node.inputs):
                waiting.update(map(id, results))
                later.append(node)
            elif size > max(self.max_bytes, sum(sizes.get(id(t), 0) for t in node.inputs)):
                self.decline(node, f"its result has {size} bytes, max_bytes is {self.max_bytes}")
            else:
                now.append(node)
        return now, later

    def compute(self, nodes: list[gs.Node]) -> list[gs.Node]:
        """Run `nodes`; returns those that onnxruntime computed."""
        self.evaluator.refused.clear()
        self.evaluator.run(nodes)
        refused = {id(node): why for node, why in self.evaluator.refused}
        done = []
        for node in self.kept(nodes):
            if id(node) in refused:
                self.decline(node, refused[id(node)])
            else:
                done.append(node)
        return done


def _candidates(
    model: Model, trace: Trace
) -> tuple[list[tuple[gs.Node, Array]], list[gs.Node], set[int]]:
    """Nodes that read only constants, in order.

    Returns Shape nodes with their results, nodes to compute, and the outputs (by `id`) of nodes
    that could be computed but must stay.
    """
    constant: set[int] = set()
    shapes: list[tuple[gs.Node, Array]] = []
    nodes: list[gs.Node] = []
    rounding: set[int] = set()
    for graph in model.graphs():  # a graph comes before the bodies that read its tensors
        for node in sorted_nodes(graph):
            if getattr(node, "unread_at_load", False) or op_name(node) == "Constant":
                continue
            inputs = [t for t in node.inputs if t.name]
            if not inputs or any(id(t) not in constant and known_values(t) is None for t in inputs):
                shape = _static_shape(node, model)
                if shape is not None:
                    shapes.append((node, shape))
                    constant.add(id(node.outputs[0]))
                continue
            reason = _why_not(node)
            if reason:
                trace.skip(node, reason)
            elif op_name(node) == "Round":
                trace.skip(node, _SPELLED_OUT)
                rounding.add(id(node))
            else:
                nodes.append(node)
                constant.update(id(t) for t in node.outputs if t.name)
    return shapes, *_not_rounded(nodes, rounding, trace)


def _why_not(node: gs.Node) -> str:
    name = op_name(node)
    if name in _QUANTIZATION:
        return "quantization stays in the graph"
    if domain_of(node):
        return f"the meaning of operators of domain '{node.domain}' is unknown"
    if name in _RANDOM:
        return "its result may be random"
    if name in _NOT_TENSORS:
        return "its result is not a tensor"
    if bodies(node):
        return "it contains subgraphs"
    return ""


def _static_shape(node: gs.Node, model: Model) -> Array | None:
    """The result of a Shape node of the main graph if its input has a fixed, declared shape."""
    if op_name(node) != "Shape" or node.owner is not model.graph:
        return None
    dims = node.inputs[0].shape
    if dims is None or any(not isinstance(d, int) for d in dims):
        return None
    # Python's slice clamps out-of-range and counts negative ends as ONNX does.
    return np.asarray(dims[node.attrs.get("start", 0) : node.attrs.get("end")], np.int64)


def _not_rounded(
    nodes: list[gs.Node], rounding: set[int], trace: Trace
) -> tuple[list[gs.Node], set[int]]:
    """Those of `nodes` that lead to no node in `rounding`, and the outputs of the others."""
    for node in reversed(nodes):
        if any(id(reader) in rounding for t in node.outputs for reader in t.outputs):
            rounding.add(id(node))
    held = [node for node in nodes if id(node) in rounding]
    for node in held:
        trace.skip(node, _SPELLED_OUT)
    kept = [node for node in nodes if id(node) not in rounding]
    return kept, {id(t) for node in held for t in node.outputs if t.name}
