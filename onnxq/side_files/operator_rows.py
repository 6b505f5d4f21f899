"""Rows of files that specify, operator by operator, the grids of its inputs and outputs.

Such files give a tensor several grids: the one of its producer and one for each consumer.
Consumers that agree with the producer share its row. Those with another grid get one more row,
after the first. A tensor without a grid from its producer is quantized for the consumers that have
one: a single row for all, if that is every consumer and they agree.
"""

from __future__ import annotations

from collections.abc import Hashable

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader
from onnxq.side_files.rows import readers_of


class OperatorRows:
    """Rows by tensor: the grid of its producer, and the grids of consumers that differ."""

    def __init__(self, parts: TensorParts) -> None:
        self._parts = parts
        self._rows: dict[str, dict[Hashable, tuple[QParams, list[Reader]]]] = {}
        self._made: dict[str, QParams] = {}

    def make(self, row: QParams) -> None:
        """Add the grid that a tensor has from its producer, or without being in the graph."""
        self._rows.setdefault(row.tensor, {})
        self._made[row.tensor] = row

    def read(self, row: QParams, *readers: Reader) -> None:
        """Add the grid that an operator has for these uses of a tensor."""
        grids = self._rows.setdefault(row.tensor, {})
        grids.setdefault(row.grid_key(), (row, []))[1].extend(readers)

    def table(self) -> QParamTable:
        """All rows, one per tensor if its operators agree."""
        table = QParamTable()
        for name, grids in self._rows.items():
            made = self._made.get(name)
            if made is not None:
                table.add(made)
                grids.pop(made.grid_key(), None)
            for row, readers in grids.values():
                every = made is None and set(readers) == readers_of(row, self._parts)
                table.add(row if every else row.with_(readers=tuple(readers)))
        return table
