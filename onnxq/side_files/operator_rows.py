"""Rows of files that tell, operator by operator, what it reads and what it makes.

Such files give a tensor several grids: the one its maker puts it on and one for each operator that
reads it. Those that agree with the maker's are that one row. Where an operator reads on another
grid, there is one more row for that operator alone, behind the first. A tensor that no maker puts
on a grid is quantized for the operators that say so: one row for all where that is everyone and
they agree.
"""

from __future__ import annotations

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader


class OperatorRows:
    """Rows by tensor: the grid it is made on, and grids of single readers that differ."""

    def __init__(self, parts: TensorParts) -> None:
        self._parts = parts
        self._made: dict[str, QParams] = {}
        self._read: dict[str, list[tuple[QParams, tuple[Reader, ...]]]] = {}

    def make(self, row: QParams) -> None:
        """Take in what the maker of a tensor, or nobody in the graph, has for it."""
        self._read.setdefault(row.tensor, [])
        self._made[row.tensor] = row

    def read(self, row: QParams, readers: tuple[Reader, ...]) -> None:
        """Take in what an operator has for a tensor that it reads, at these places."""
        self._read.setdefault(row.tensor, []).append((row, readers))

    def table(self) -> QParamTable:
        """All of them, one for a tensor where all agree."""
        table = QParamTable()
        for name, read in self._read.items():
            made = self._made.get(name)
            if made is not None:
                table.add(made)
                read = [(row, readers) for row, readers in read if not row.same_grid(made)]
            elif self._agree(name, read):
                table.add(read[0][0])
                continue
            for row, readers in read:
                table.add(row.with_(readers=readers))
        return table

    def _agree(self, name: str, read: list[tuple[QParams, tuple[Reader, ...]]]) -> bool:
        """Whether everything that sees a tensor reads it on one grid."""
        tensor = self._parts.find(name)
        if tensor is None or self._parts.model.is_output(tensor):
            return False
        first = read[0][0]
        covered = sum(len(readers) for _, readers in read)
        uses = len(self._parts.uses(tensor))
        return covered == uses and all(row.same_grid(first) for row, _ in read)
