"""Put a quantization table into a graph: the inverse of collecting and removing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.bias_readers import bias_readers_followed
from onnxq.analysis.float_graph import FloatGraph, FloatTensor, Use
from onnxq.canonical.quantizers import Row, make, row_of
from onnxq.edit import insert_at, producer
from onnxq.errors import LoadError, OnnxqError, PassError
from onnxq.graph import Model
from onnxq.near_words import closest
from onnxq.opsets.float_types import FloatTypes
from onnxq.pass_ import Pass, Trace
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.storage.model_files import read_bytes
from passes.collect_qparams import rows_by_tensor


@dataclass(frozen=True)
class ApplyQParams(Pass):
    """Insert a quantizer for every row of the quantization table.

    The table is the model's own, or that of the JSON file `file`. Bias rows need no quantizer and
    stay rows. A row whose quantizer is already there is left alone.
    """

    name: ClassVar[str] = "apply-qparams"

    file: str = ""

    def run(self, model: Model, trace: Trace) -> None:
        if self.file:
            model.qparams = _read(Path(self.file))
        # All rows are checked before the first is applied: an error leaves the graph as it was.
        plan = list(_plan(FloatGraph(model), rows_by_tensor(model.qparams)))
        types = FloatTypes()
        with bias_readers_followed(model):
            for row, uses, missing in plan:
                if missing:
                    _insert(model, row, missing, types, trace)
                elif uses:
                    trace.skip(f"'{row.tensor}'", "its quantizer is already there")
                else:
                    trace.skip(f"'{row.tensor}'", "it is unused")


def _read(path: Path) -> QParamTable:
    try:
        return QParamTable.loads(read_bytes(path).decode())
    except UnicodeDecodeError as error:
        fix = "give a quantization table written by onnxq"
        raise LoadError(f"{path}: not a text file", fix=fix) from error
    except OnnxqError as error:
        raise type(error)(f"{path}: {error.what}", fix=error.fix) from error


def _plan(
    graph: FloatGraph, rows: dict[str, list[Row]]
) -> Iterator[tuple[Row, list[Use], list[Use]]]:
    """Each row with its uses, and those of them that its quantizer must be inserted for.

    Along the way to each use, rows are looked for in order among the quantizers in place. From
    the first one that is not found, rows are inserted, each directly before the use.
    """
    tensors = _find(graph, rows)
    for name, of_tensor in rows.items():
        tensor = tensors[name]
        grids = {quantizer: row_of(quantizer.node) for quantizer in tensor.quantizers}
        ahead = {u: [grids[q] for q in u.via.path()] if u.via else [] for u in tensor.uses}
        for row in of_tensor:
            _check_tensor(row, tensor.tensor)
            uses = _uses(row, tensor, graph)
            yield row, uses, [use for use in uses if not _take(row, ahead[use])]


def _take(row: Row, ahead: list[Row]) -> bool:
    """Remove the grids ahead of a use up to that of `row`, or all; whether it was there."""
    while ahead:
        if ahead.pop(0).same_grid(row):
            return True
    return False


def _find(graph: FloatGraph, names: Iterable[str]) -> dict[str, FloatTensor]:
    """The float tensors that rows name."""
    known = {id(t.tensor): t for t in graph.quantized}
    unknown = [name for name in names if name not in graph.tensors]
    if unknown:
        raise _unknown_tensors(unknown, list(graph.tensors))
    found = {}
    for name in names:
        tensor, *others = graph.tensors[name]
        if others:
            raise PassError(
                f"'{name}' names {1 + len(others)} tensors in different bodies",
                fix="rename them in the model, or collect the table from this very model",
            )
        found[name] = known.get(id(tensor)) or graph.of(tensor)
    return found


def _unknown_tensors(unknown: list[str], known: list[str]) -> PassError:
    """An error that names them, and suggests similar names."""
    shown = unknown[:10]
    near = {name: closest(name, known, 1, 0.6) for name in shown}
    hints = [f"'{name}' may mean '{found[0]}'" for name, found in near.items() if found]
    more = f" and {len(unknown) - len(shown)} more" if len(unknown) > len(shown) else ""
    return PassError(
        "the quantization table has rows for tensors that are not in the graph: "
        + ", ".join(f"'{name}'" for name in shown)
        + more,
        fix="; ".join(hints) or "give the table that was collected from this model",
    )


def _check_tensor(row: Row, tensor: gs.Tensor) -> None:
    """Compare a row with what is known about its tensor."""
    dtype, shape = tensor.dtype, tensor.shape
    if dtype is not None and np.dtype(dtype).kind in "iub":
        raise PassError(
            f"tensor '{row.tensor}' is {np.dtype(dtype)} and cannot be quantized",
            fix="remove its row from the table",
        )
    if not isinstance(row, LogParams):
        row.check_shape(shape)


def _uses(row: Row, tensor: FloatTensor, graph: FloatGraph) -> list[Use]:
    """The uses that `row` applies to."""
    if row.readers is None:
        return tensor.uses
    by_reader = {graph.reader(use): use for use in tensor.uses}
    for reader in row.readers:
        if reader not in by_reader:
            who = f"input {reader.input} of the producer of '{reader.node}'"
            raise PassError(
                f"the row for tensor '{row.tensor}' names {who if reader.node else 'the output'} "
                "as a consumer, which does not read it",
                fix="collect the table from this graph again, or remove 'readers' from the row",
            )
    return [by_reader[reader] for reader in row.readers]


def _insert(model: Model, row: Row, uses: list[Use], types: FloatTypes, trace: Trace) -> None:
    """Put a quantizer directly before `uses`, one for each tensor they read now."""
    reads: dict[int, list[Use]] = {}
    for use in uses:
        reads.setdefault(id(use.tensor), []).append(use)
    for group in reads.values():
        tensor, dtype = group[0].tensor, types.of(group[0].tensor)
        leaves = any(use.leaves is not None for use in group)
        if leaves and producer(tensor) is None:
            trace.skip(f"'{row.tensor}'", "it is both an input and an output of the graph")
            continue

        def build(x: gs.Tensor, y: gs.Tensor, graph: gs.Graph, dtype: Any = dtype) -> gs.Node:
            return make(model, x, y, row, graph, dtype=dtype)

        moved = [(use.node, use.index) for use in group if use.leaves is None]
        types.note(insert_at(model, tensor, build, moved, leaves), dtype)
        trace.rewrote(f"'{row.tensor}'")
