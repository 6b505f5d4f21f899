"""A quantization table put into a graph: the inverse of collecting and removing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.bias_readers import bias_readers_followed
from onnxq.analysis.float_graph import FloatGraph, FloatTensor, Use
from onnxq.canonical.quantizers import Row, make, row_of
from onnxq.edit import insert_at, producer
from onnxq.errors import LoadError, PassError, QParamsError
from onnxq.graph import Model
from onnxq.near_words import closest
from onnxq.opsets.float_types import FloatTypes
from onnxq.pass_ import Pass, Trace
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from onnxq.storage.model_files import read_bytes


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
        rows: dict[str, list[Row]] = {}
        linear = model.qparams.of(Role.ACTIVATION, Role.WEIGHT)
        every: list[Row] = [*linear, *model.qparams.logarithmic]
        for row in every:
            rows.setdefault(row.tensor, []).append(row)
        # All rows are checked before the first is applied: an error leaves the graph as it was.
        plan = list(_plan(FloatGraph(model), rows))
        types = FloatTypes()
        present = _Present()
        with bias_readers_followed(model):
            for row, tensor, uses in plan:
                missing = present.missing(row, tensor, uses)
                if missing:
                    _insert(model, row, missing, types, trace)
                elif uses:
                    trace.skip(f"'{row.tensor}'", "its quantizer is already there")
                else:
                    trace.skip(f"'{row.tensor}'", "it is unused")


def _plan(
    graph: FloatGraph, rows: dict[str, list[Row]]
) -> Iterator[tuple[Row, FloatTensor, list[Use]]]:
    """Each row with the tensor and the uses it speaks of, tensor by tensor."""
    tensors = _find(graph, rows)
    for name, of_tensor in rows.items():
        tensor = tensors[name]
        for row in of_tensor:
            _check_fit(row, tensor.tensor)
            yield row, tensor, _uses(row, tensor, graph)


def _read(path: Path) -> QParamTable:
    fix = "give a quantization table written by onnxq"
    try:
        text = read_bytes(path).decode()
    except LoadError as error:
        raise LoadError(f"{path}: {error.what}", fix=fix) from error
    except UnicodeDecodeError as error:
        raise LoadError(f"{path}: not a text file", fix=fix) from error
    try:
        return QParamTable.loads(text)
    except QParamsError as error:
        raise QParamsError(f"{path}: {error.what}", fix=error.fix) from error


def _find(graph: FloatGraph, names: dict[str, Any]) -> dict[str, FloatTensor]:
    """The float tensors that rows speak of."""
    known = {id(t.tensor): t for t in graph.quantized}
    unknown = [name for name in names if name not in graph.tensors]
    if unknown:
        raise _unknown_tensors(unknown, list(graph.tensors))
    found = {}
    for name in names:
        candidates = graph.tensors[name]
        if len(candidates) > 1:
            raise PassError(
                f"'{name}' names {len(candidates)} tensors in different bodies",
                fix="rename them in the model, or collect the table from this very model",
            )
        tensor = candidates[0]
        found[name] = known.get(id(tensor)) or graph.of(tensor)
    return found


def _unknown_tensors(unknown: list[str], known: list[str]) -> PassError:
    """Name them, and what may have been meant by those that resemble something."""
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


def _check_fit(row: Row, tensor: gs.Tensor) -> None:
    """Compare a row with what is known about its tensor."""
    dtype, shape = tensor.dtype, tensor.shape
    if dtype is not None and np.dtype(dtype).kind in "iub":
        raise PassError(
            f"tensor '{row.tensor}' is {np.dtype(dtype)} and cannot be quantized",
            fix="remove its row from the table",
        )
    if shape is None or isinstance(row, LogParams) or row.axis is None:
        return
    known = [d if isinstance(d, int) else -1 for d in shape]
    axis = row.axis if row.axis >= 0 else row.axis + len(known)
    unsure = -1 in known if row.block else 0 <= axis < len(known) and known[axis] < 0
    if not unsure:
        row.broadcast(tuple(known))


def _uses(row: Row, tensor: FloatTensor, graph: FloatGraph) -> list[Use]:
    """The uses that `row` speaks of."""
    if row.readers is None:
        return tensor.uses
    by_reader = {graph.reader(use): use for use in tensor.uses}
    for reader in row.readers:
        if reader not in by_reader:
            who = f"input {reader.input} of the producer of '{reader.node}'"
            raise PassError(
                f"the row for tensor '{row.tensor}' names {who if reader.node else 'the output'} "
                "as a reader, which it is not",
                fix="collect the table from this graph again, or remove 'readers' from the row",
            )
    return [by_reader[reader] for reader in row.readers]


class _Present:
    """Which rows the graph had before the pass began.

    Along the way to each use, rows are looked for in order among the quantizers in place. From
    the first one that is not found on, rows are inserted, each directly in front of the use.
    """

    def __init__(self) -> None:
        self._ahead: dict[Use, list[Row]] = {}
        self._grids: dict[int, Row] = {}

    def missing(self, row: Row, tensor: FloatTensor, uses: list[Use]) -> list[Use]:
        """The uses that `row` must still be inserted for."""
        if not tensor.quantizers:
            return uses
        return [use for use in uses if not self._has(row, use)]

    def _has(self, row: Row, use: Use) -> bool:
        ahead = self._ahead.get(use)
        if ahead is None:
            path = use.via.path() if use.via is not None else []
            ahead = self._ahead[use] = [self._grid(quantizer.node) for quantizer in path]
        for at, grid in enumerate(ahead):
            if grid.same_grid(row):
                del ahead[: at + 1]
                return True
        ahead.clear()
        return False

    def _grid(self, node: gs.Node) -> Row:
        if id(node) not in self._grids:
            self._grids[id(node)] = row_of(node)
        return self._grids[id(node)]


def _insert(model: Model, row: Row, uses: list[Use], types: FloatTypes, trace: Trace) -> None:
    """Put a quantizer directly in front of `uses`, one for each tensor they read now."""
    reads: dict[int, list[Use]] = {}
    for use in uses:
        reads.setdefault(id(use.tensor), []).append(use)
    for group in reads.values():
        tensor = group[0].tensor
        leaves = any(use.leaves is not None for use in group)
        if leaves and producer(tensor) is None:
            trace.skip(f"'{row.tensor}'", "it is an input and an output of the graph at once")
            continue
        moved = [(use.node, use.index) for use in group if use.leaves is None]
        dtype = types.of(tensor)
        made = insert_at(model, tensor, _builder(model, row, dtype), moved, leaves)
        types.note(made, dtype)
        trace.rewrote(f"'{row.tensor}'")


def _builder(
    model: Model, row: Row, dtype: Any
) -> Callable[[gs.Tensor, gs.Tensor, gs.Graph], gs.Node]:
    def build(source: gs.Tensor, result: gs.Tensor, graph: gs.Graph) -> gs.Node:
        return make(model, source, result, row, graph, dtype=dtype)

    return build
