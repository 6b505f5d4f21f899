"""Carry quantizers across operators that only move values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import QUANTIZERS, Row, is_quantizer, make, row_of
from onnxq.edit import describe, insert, only_reader, op_name, producer
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.operators.traits import MOVES, moved_outputs, moves
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams
from onnxq.storage.exporter import nodes_with_bodies

_MOVERS = MOVES | {"Concat", "Pad", "Relu", "Resize", "Upsample"}
"""Operators that move values, or whose results stay on the grid (Concat, Relu)."""


@dataclass(frozen=True)
class PropagateRanges(Pass):
    """Complete quantizers across operators that only move, select or duplicate values.

    Forward: the data of the operator is quantized and its result is not. The values are on the
    grid already, so the same quantizer after it changes nothing. Backward: the result is
    quantized, and the data, which only this operator reads, is not. Rounding commutes with
    moving. Only per-tensor quantizers are carried, and none between a weight and its layer.
    """

    backward: bool = True
    """Whether data is quantized like results: not if each quantizer costs the target a layer."""

    constants: bool = True
    """Whether tables that rows are gathered from are quantized like the rows: not if the files of
    the target have no place for their range."""

    name: ClassVar[str] = "propagate-ranges"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        if not model.nodes(*QUANTIZERS):
            return
        movers = [n for n in nodes_with_bodies(model.graph) if op_name(n) in _MOVERS]
        for node in movers:
            found = [producer(tensor, *QUANTIZERS) for tensor in _data(node)]
            results = [t for t in _results(node, model) if not _quantized(t)]
            _carry(model, node, found, results, trace)
        for node in reversed(movers if self.backward else []):
            # A quantizer between a layer and its Relu would keep runtimes from fusing the two.
            if node.op != "Relu":
                found = [_only_quantizer(t, model) for t in _results(node, model)]
                data = [t for t in _data(node) if producer(t, *QUANTIZERS) is None]
                if not self.constants:
                    data = [t for t in data if not is_constant(t)]
                _carry(model, node, found, data, trace, backward=True)


def _carry(
    model: Model,
    node: gs.Node,
    found: list[gs.Node | None],
    targets: list[gs.Tensor],
    trace: Trace,
    backward: bool = False,
) -> None:
    """Quantize `targets` on one side of `node` like the quantizers found on the other."""
    quantizers = [quantizer for quantizer in found if quantizer is not None]
    if not targets or not quantizers:
        return
    grids = [row_of(quantizer) for quantizer in quantizers]
    side = "results" if backward else "inputs"
    if len(quantizers) < len(found):
        reason = f"some of its {side} are not quantized"
    elif any(is_constant(quantizer.inputs[0]) for quantizer in quantizers):
        reason = "its data is a weight"
    elif any(not grid.same_grid(grids[0]) for grid in grids):
        reason = f"its {side} are quantized differently"
    elif backward and node.op == "MaxPool" and any(_used(t, model) for t in node.outputs[1:]):
        reason = "its indices are used, and rounding makes more values equal"
    else:
        reason = _declined(node, grids[0], quantizers[0])
    if reason:
        trace.skip(node, reason)
        return
    dtype = quantizers[0].inputs[1].dtype
    for tensor in targets:
        if backward and not only_reader(tensor, node, model):
            trace.skip(node, f"'{tensor.name}' has other consumers")
        else:
            _quantize(model, tensor, grids[0].with_(tensor=tensor.name), dtype)
            trace.rewrote(node, f"'{tensor.name}' is quantized like its {side}")


def _declined(node: gs.Node, grid: Row, quantizer: gs.Node) -> str:
    """Why this grid cannot be carried across `node`, "" if it can."""
    if not grid.is_per_tensor:
        return "its quantizer has one scale per channel or block, and the channels may move"
    if node.op not in ("Concat", "Relu") and not moves(node):
        return f"{describe(node)} computes new values"
    half = quantizer.inputs[1].dtype == np.float16
    if half and isinstance(grid, QParams) and (grid.qtype.bits > 8 or grid.qtype.floating):
        return f"float16 cannot represent the values of {grid.qtype} codes exactly"
    return ""


def _data(node: gs.Node) -> list[gs.Tensor]:
    return list(node.inputs if node.op == "Concat" else node.inputs[:1])


def _results(node: gs.Node, model: Model) -> list[gs.Tensor]:
    return [t for i in moved_outputs(node) if _used(t := node.outputs[i], model)]


def _used(tensor: gs.Tensor, model: Model) -> bool:
    return bool(tensor.outputs) or model.is_output(tensor)


def _quantized(tensor: gs.Tensor) -> bool:
    """Whether some consumer of `tensor` is a quantizer."""
    return any(is_quantizer(n) and n.inputs[0] is tensor for n in tensor.outputs)


def _only_quantizer(tensor: gs.Tensor, model: Model) -> gs.Node | None:
    """The quantizer that is the only use of `tensor`."""
    node = next(iter(tensor.outputs), None)
    return node if _quantized(tensor) and only_reader(tensor, node, model) else None


def _quantize(model: Model, tensor: gs.Tensor, row: Row, dtype: Any) -> None:
    insert(model, tensor, lambda x, y, graph: make(model, x, y, row, graph, dtype=dtype))
