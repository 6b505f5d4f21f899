"""Ranges for PPL on GPUs as MQBench's loaders expect them: text, one activation a line.

    <tensor>: <largest magnitude>

The number is max(-low, high) of the range low..high, and nothing tells where zero lies in it: read
back it is the symmetric int8 grid of that reach, scale = magnitude / 127. The format 'ppl-nn'
holds everything.
"""

from __future__ import annotations

import re

import numpy as np

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.parsing.decimal_text import number as number_in
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.side_file import SideFile

_FIX = "lines are '<tensor>: <largest magnitude>'"
_LINE = re.compile(r"(.+): (\S+)")


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
    """The largest magnitude on the grid of one scale."""
    return float(np.max(np.abs(row.range)))


def _refusal(row: QParams) -> str | None:
    if not row.tensor or "\n" in row.tensor or "\r" in row.tensor:
        return "its name contains a line break"
    return side_rows.per_channel(row)


def read(text: str, model: Model) -> QParamTable:
    """Symmetric int8 rows of the same magnitudes: `write` gives the same text for them."""
    parts = TensorParts(model)
    rows: dict[str, QParams] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise LoadError(f"line {number} is not '<tensor>: <magnitude>'", fix=_FIX)
        name, value = found.groups()
        entry = Entry({}, f"line {number}, tensor '{name}'", _FIX)
        if name in rows:
            raise entry.error("it has a line already")
        scale = entry.decimal("magnitude", value) / 127.0
        row = side_rows.make_row(entry, name, 8, True, scale, 0, Role.ACTIVATION)
        rows[name] = side_rows.with_role(row.with_(lo=-127), parts)
    return QParamTable(list(rows.values()))


def _recognises(content: str) -> bool:
    lines = [
        _LINE.fullmatch(line.removesuffix("\r")) for line in content.split("\n") if line.strip()
    ]
    found = [line[2] for line in lines if line is not None]
    return len(found) == len(lines) and any(number_in(value) is not None for value in found)


FORMAT = SideFile(
    "mqbench-ppl-cuda",
    "PPL CUDA in MQBench's form: the largest magnitude per activation",
    write,
    read,
    recognises=_recognises,
    detection="text with lines '<tensor>: <magnitude>'",
    weights=False,
    magnitudes=True,
)
