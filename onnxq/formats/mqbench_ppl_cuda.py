"""Ranges for PPL on GPUs as MQBench's loaders expect them: text, one activation per line.

    <tensor>: <largest magnitude>

The number is max(-low, high) of the range low..high. The file does not specify the zero point: read
back it is the symmetric int8 grid of that reach, scale = magnitude / 127. The format 'ppl-nn'
contains everything.
"""

from __future__ import annotations

import re

import numpy as np

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.graph import Model
from onnxq.parsing.decimal_text import number
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.side_file import SideFile
from onnxq.side_files.tensor_lines import matches, tensor_lines

_FORM = "'<tensor>: <magnitude>'"
_LINE = re.compile(r"(.+): (\S+)\r?")


def write(table: QParamTable, model: Model) -> str:
    """The text."""
    rows = side_rows.writable(
        table.of(Role.ACTIVATION),
        "PPL ranges",
        _refusal,
        "use one scale per tensor, or the format 'ppl-nn'",
    )
    return "".join(f"{row.tensor}: {magnitude(row)!r}\n" for row in rows)


def magnitude(row: QParams) -> float:
    """The largest magnitude on a grid with one scale."""
    return float(np.max(np.abs(row.range)))


def _refusal(row: QParams) -> str | None:
    if not row.tensor or "\n" in row.tensor or "\r" in row.tensor:
        return "its name contains a line break"
    return side_rows.per_channel(row)


def read(text: str, model: Model) -> QParamTable:
    """Symmetric int8 rows of the same magnitudes: `write` gives the same text for them."""
    parts = TensorParts(model)
    table = QParamTable()
    for entry, found in tensor_lines(text, _LINE, _FORM):
        scale = entry.decimal("magnitude", found[2]) / 127.0
        row = side_rows.make_row(entry, found[1], 8, True, scale, 0).with_(lo=-127)
        table.add(side_rows.with_role(row, parts))
    return table


def _recognises(content: str) -> bool:
    return any(number(found[2]) is not None for found in matches(content, _LINE))


FORMAT = SideFile(
    "mqbench-ppl-cuda",
    "PPL CUDA in MQBench's form: the largest magnitude per activation",
    write,
    read,
    recognises=_recognises,
    detection=f"text with lines {_FORM}",
    weights=False,
    magnitudes=True,
)
