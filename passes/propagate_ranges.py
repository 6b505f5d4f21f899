"""Quantizers carried across operators that only move values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import QUANTIZERS, Row, is_quantizer, make, row_of
from onnxq.edit import describe, insert, only_reader, producer
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import is_constant
from onnxq.operators.traits import MOVES, moved_outputs, moves
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams
from onnxq.storage.exporter import nodes_with_bodies


@dataclass(frozen=True)
class Mover:
    """How a quantizer is carried across an operator."""

    all_inputs: bool = False
    """Whether all inputs are data, not only the first."""
    backward: bool = True
    """Whether a quantizer of the result may also be before the operator."""


MOVERS = {
    **dict.fromkeys(MOVES | {"Pad", "Resize", "Upsample"}, Mover()),
    "Concat": Mover(all_inputs=True),
    # A quantizer between a layer and its Relu would keep runtimes from fusing the two.
    "Relu": Mover(backward=False),
}
"""Operators that move values, and two more whose results stay on the grid."""


@dataclass(frozen=True)
class PropagateRanges(Pass):
    """Complete quantizers across operators that only move, select or duplicate values.

    Forward: the data of the operator is quantized and its result is not: the values lie on the
    grid already, so the same quantizer behind it changes nothing. Backward: the result is
    quantized, and the data, which only this operator reads, is not: rounding commutes with
    moving. Only per-tensor quantizers are moved, and none on the way of a weight.
    """

    backward: bool = True
    """Whether data is quantized like results: not if each quantizer costs the target a layer."""

    name: ClassVar[str] = "propagate-ranges"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        if not model.nodes(*QUANTIZERS):
            return
        movers = [n for n in nodes_with_bodies(model.graph) if not domain_of(n) and n.op in MOVERS]
        for node in movers:
            _forward(model, node, trace)
        for node in reversed(movers if self.backward else []):
            if MOVERS[node.op].backward:
                _backward(model, node, trace)


def _forward(model: Model, node: gs.Node, trace: Trace) -> None:
    """Quantize the results like the data."""
    data = _data(node)
    sources = [producer(tensor, *QUANTIZERS) for tensor in data]
    results = [t for t in _results(node) if not _quantized(t) and _used(t, model)]
    if not results or not any(sources):
        return
    grids = [row_of(source) for source in sources if source is not None]
    if len(grids) < len(data):
        reason = "some of its inputs are not quantized"
    elif any(is_constant(source.inputs[0]) for source in sources if source is not None):
        reason = "its data is a weight"
    elif any(not grid.same_grid(grids[0]) for grid in grids):
        reason = "its inputs are quantized differently"
    else:
        reason = _declined(node, grids[0], sources[0])
    if reason:
        trace.skip(node, reason)
        return
    for result in results:
        _quantize(model, result, grids[0], sources[0])
        trace.rewrote(node, f"'{result.name}' is quantized like its data")


def _backward(model: Model, node: gs.Node, trace: Trace) -> None:
    """Quantize the data like the results."""
    results = [t for t in _results(node) if _used(t, model)]
    sinks = [_only_quantizer(t, model) for t in results]
    data = [t for t in _data(node) if producer(t, *QUANTIZERS) is None]
    if not data or not any(sinks):
        return
    grids = [row_of(sink) for sink in sinks if sink is not None]
    if len(grids) < len(results):
        reason = "some of its results are not quantized"
    elif any(not grid.same_grid(grids[0]) for grid in grids):
        reason = "its results are quantized differently"
    elif is_constant(results[0]):
        reason = "its data is a weight"
    elif node.op == "MaxPool" and len(node.outputs) > 1 and _used(node.outputs[1], model):
        reason = "its indices are used, and rounding makes more values equal"
    else:
        reason = _declined(node, grids[0], sinks[0])
    if reason:
        trace.skip(node, reason)
        return
    for tensor in data:
        if not only_reader(tensor, node, model):
            trace.skip(node, f"'{tensor.name}' has other consumers")
        else:
            _quantize(model, tensor, grids[0], sinks[0])
            trace.rewrote(node, f"'{tensor.name}' is quantized like its result")


def _declined(node: gs.Node, grid: Row, quantizer: gs.Node | None) -> str:
    """Why this grid cannot be moved across `node`, "" if it can."""
    if not grid.is_per_tensor:
        return "its quantizer has one scale per channel or block, and the channels may move"
    if node.op not in ("Concat", "Relu") and not moves(node):
        return f"{describe(node)} computes new values"
    assert quantizer is not None
    half = quantizer.inputs[1].dtype == np.float16
    if half and isinstance(grid, QParams) and (grid.qtype.bits > 8 or grid.qtype.floating):
        return f"float16 cannot represent the values of {grid.qtype} codes exactly"
    return ""


def _data(node: gs.Node) -> list[gs.Tensor]:
    return list(node.inputs) if MOVERS[node.op].all_inputs else [node.inputs[0]]


def _results(node: gs.Node) -> list[gs.Tensor]:
    return [node.outputs[i] for i in moved_outputs(node)]


def _used(tensor: gs.Tensor, model: Model) -> bool:
    return bool(tensor.outputs) or model.is_output(tensor)


def _quantized(tensor: gs.Tensor) -> bool:
    """Whether some reader of `tensor` is a quantizer."""
    return any(is_quantizer(n) and n.inputs[0] is tensor for n in tensor.outputs)


def _only_quantizer(tensor: gs.Tensor, model: Model) -> gs.Node | None:
    """The quantizer that all uses of `tensor` go through."""
    if model.is_output(tensor) or len(tensor.outputs) != 1 or not _quantized(tensor):
        return None
    node: gs.Node = tensor.outputs[0]
    return node


def _quantize(model: Model, tensor: gs.Tensor, grid: Row, like: gs.Node | None) -> None:
    """Put a quantizer like `like` behind `tensor`."""
    dtype = None if like is None else like.inputs[1].dtype

    def build(source: gs.Tensor, result: gs.Tensor, graph: gs.Graph) -> None:
        make(model, source, result, grid.with_(tensor=tensor.name), graph, dtype=dtype)

    insert(model, tensor, build)


__all__ = ["MOVERS", "Mover", "PropagateRanges"]
