"""Collect the quantization of a graph in a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.analysis.float_graph import FloatGraph
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
    """Write every quantizer as a row of the model's quantization table.

    A row names its tensor and the consumers it serves as they are called in the float graph, that
    is, once the quantizers are removed. Chained quantizers are rows of the same tensor, in order.
    Bias rows stay; all others are replaced. The graph keeps its quantizers.
    """

    name: ClassVar[str] = "collect-qparams"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True
    # These rename tensors or change parameters, so that rows collected earlier would be wrong.
    after: ClassVar[tuple[str, ...]] = (
        *("drop-identity", "split-shared-weights", "fold-batch-norm", "fold-affine"),
        *("clip-weights", "round-weights", "unify-scales", "retype-activations"),
    )

    def run(self, model: Model, trace: Trace) -> None:
        if not model.nodes(*QUANTIZERS):
            kept = sum(map(len, rows_by_tensor(model.qparams).values()))
            if kept:
                trace.note(f"the graph has no quantizers: its table of {kept} rows is kept")
            return
        make_names_unique(model, trace)
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
                above = quantizer.parent
                if above is not None and above.node.op != quantizer.node.op:
                    raise PassError(  # a table does not specify the order of both kinds
                        f"tensor '{name}' is quantized linearly and logarithmically in a row",
                        fix="remove one of the two quantizers",
                    )
        _report(model.qparams, rows, trace)
        linear = [row for row in rows if isinstance(row, QParams)]
        model.qparams = QParamTable(
            linear + model.qparams.of(Role.BIAS),
            [row for row in rows if isinstance(row, LogParams)],
        )


def rows_by_tensor(table: QParamTable) -> dict[str, list[Row]]:
    """The rows of all quantizers, in order."""
    rows: list[Row] = [*table.of(Role.ACTIVATION, Role.WEIGHT), *table.logarithmic]
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.tensor, []).append(row)
    return found


def _report(old: QParamTable, rows: list[Row], trace: Trace) -> None:
    """Report which rows are new or changed, and which tensors the table loses."""
    known = rows_by_tensor(old)
    for row in rows:
        same = known.get(row.tensor, [])
        if row in same:
            same.remove(row)
        else:
            trace.rewrote(f"'{row.tensor}'", _describe(row))
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


def make_names_unique(model: Model, trace: Trace) -> None:
    """Rename tensors inside bodies whose names another graph uses too.

    Two bodies may use the same name, but a row must mean one tensor. Names in bodies are private.
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
