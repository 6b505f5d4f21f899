"""The quantization of a graph, written down as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.analysis.float_graph import FloatGraph, FloatTensor
from onnxq.canonical.quantizers import QUANTIZERS, Row, row_of
from onnxq.errors import PassError
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.storage.exporter import live_nodes


@dataclass(frozen=True)
class CollectQParams(Pass):
    """Write every quantizer down as a row of the model's quantization table.

    A row names its tensor and the readers it serves as they are called in the float graph, that
    is, once the quantizers are removed. Chained quantizers are rows of the same tensor, in order.
    Bias rows stay; all others are replaced. The graph keeps its quantizers.
    """

    name: ClassVar[str] = "collect-qparams"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True
    # These rename tensors or change parameters that rows would still tell.
    after: ClassVar[tuple[str, ...]] = (
        *("drop-identity", "split-shared-weights", "fold-batch-norm", "fold-affine"),
        *("clip-weights", "round-weights", "unify-scales", "retype-activations"),
    )

    def run(self, model: Model, trace: Trace) -> None:
        if not model.nodes(*QUANTIZERS):
            kept = len(_quantizer_rows(model.qparams))
            if kept:
                trace.note(f"the graph has no quantizers: its table of {kept} rows is kept")
            return
        _make_names_unique(model, trace)
        rows: list[Row] = []
        graph = FloatGraph(model)
        for tensor in graph.quantized:
            for quantizer in tensor.unread:
                trace.skip(quantizer.node, "its output is unused")
            name, role = graph.name(tensor.tensor), tensor.role
            for quantizer in tensor.quantizers:
                readers = None
                if len(quantizer.uses) != len(tensor.uses):
                    readers = tuple(sorted(map(graph.reader, quantizer.uses)))
                rows.append(row_of(quantizer.node, name, role=role, readers=readers))
            _check_order(tensor, name)
        _report(model.qparams, rows, trace)
        linear = [row for row in rows if isinstance(row, QParams)]
        model.qparams = QParamTable(
            linear + model.qparams.of(Role.BIAS),
            [row for row in rows if isinstance(row, LogParams)],
        )


def _quantizer_rows(table: QParamTable) -> list[Row]:
    return [*table.of(Role.ACTIVATION, Role.WEIGHT), *table.logarithmic]


def _check_order(tensor: FloatTensor, name: str) -> None:
    """Refuse grids of both kinds one behind the other: a table does not tell their order."""
    for quantizer in tensor.quantizers:
        above = quantizer.parent
        if above is not None and above.node.op != quantizer.node.op:
            raise PassError(
                f"tensor '{name}' is quantized linearly and logarithmically in a row",
                fix="remove one of the two quantizers",
            )


def _report(old: QParamTable, rows: list[Row], trace: Trace) -> None:
    """Say which rows are new or changed, and how many the table loses."""
    known: dict[str, list[Row]] = {}
    for row in _quantizer_rows(old):
        known.setdefault(row.tensor, []).append(row)
    for row in rows:
        same = known.get(row.tensor, [])
        at = next((i for i, other in enumerate(same) if other == row), None)
        if at is None:
            trace.rewrote(f"'{row.tensor}'", _describe(row))
        else:
            del same[at]
    collected = {row.tensor for row in rows}
    gone = [name for name, left in known.items() if left and name not in collected]
    if gone:
        trace.note(
            f"rows dropped, because the graph does not quantize these tensors: {', '.join(gone)}"
        )


def _describe(row: Row) -> str:
    if isinstance(row, LogParams):
        return f"{row.role} logarithmic, largest magnitude {row.data_max:.6g}"
    scales = f"scale {row.scale.item():.6g}" if not row.scale.ndim else f"{row.scale.size} scales"
    return f"{row.role} {row.qtype} {row.lo}..{row.hi}, {scales}"


def _make_names_unique(model: Model, trace: Trace) -> None:
    """Rename tensors inside bodies whose names another graph uses too.

    Two bodies may use one name, but a row must mean one tensor. Names inside bodies are private.
    """
    seen: dict[str, gs.Tensor] = {}
    for graph in model.graphs():
        made = (t for node in live_nodes(graph) for t in node.outputs)
        for tensor in (*graph.inputs, *graph.record.constants, *made):
            old = tensor.name
            if old and seen.setdefault(old, tensor) is not tensor:
                tensor.name = model.fresh_name(old)
                seen[tensor.name] = tensor
                trace.note(f"'{old}' names several tensors: the one in a body is '{tensor.name}'")
