"""Tengine's scale file for its uint8 mode: text, one activation per line.

    <tensor> <scale> <zero point>

Tengine splits at spaces, so names must not contain any. It quantizes weights itself, from their
smallest and largest value; lines for weights, which some tools write, are read, but not written.
Tengine runs Relu inside the convolution before it and looks for a line with the convolution's
output, so that gets the scale of the Relu's output (or of a Clip's from 0 up). An int8 quantizer
with zero point z is written, and read back, as the uint8 one with z + 128.
"""

from __future__ import annotations

import re

from onnxq.analysis.implied_ranges import with_implied, without_implied
from onnxq.analysis.tensor_roles import TensorParts
from onnxq.graph import Model
from onnxq.parsing.decimal_text import integer, number
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.side_file import SideFile
from onnxq.side_files.tensor_lines import matches, tensor_lines

_FORM = "'<tensor> <scale> <zero point>'"
_LINE = re.compile(r"\s*(\S+) (\S+) (\S+)\s*")
_FUNCTIONS = ("Relu", "Clip")
_LAYERS = ("Conv",)


def write(table: QParamTable, model: Model) -> str:
    """The text; scales are the shortest decimals that read back unchanged."""
    rows = side_rows.writable(
        table.of(Role.ACTIVATION),
        "Tengine scales",
        _refusal,
        "use uint8 with all its codes and one scale per tensor",
    )
    held = with_implied(QParamTable(rows), model, _FUNCTIONS, _LAYERS)
    shifted = (side_rows.unsigned(row) for row in held)
    return "".join(f"{r.tensor} {float(r.scale)!r} {int(r.zero_point)}\n" for r in shifted)


def _refusal(row: QParams) -> str | None:
    if not re.fullmatch(r"\S+", row.tensor):
        return "its name contains spaces"
    if side_rows.bits_of(row) != 8:
        return f"codes {row.lo}..{row.hi} of {row.qtype}, not those of uint8"
    return side_rows.per_channel(row)


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    parts = TensorParts(model)
    table = QParamTable()
    for entry, found in tensor_lines(text, _LINE, _FORM):
        scale = entry.decimal("scale", found[2])
        zero = entry.whole_decimal("zero point", found[3])
        row = side_rows.make_row(entry, found[1], 8, False, scale, zero)
        table.add(side_rows.with_role(row, parts))
    return without_implied(table, model, _FUNCTIONS, _LAYERS)


def _recognises(content: str) -> bool:
    found = matches(content, _LINE)
    return any(number(m[2]) is not None and integer(m[3]) is not None for m in found)


FORMAT = SideFile(
    "tengine-scale",
    "Tengine's scale file: scale and zero point per activation (uint8)",
    write,
    read,
    recognises=_recognises,
    detection=f"text of lines {_FORM}",
    suffix=".scale",
    weights=False,
    narrow=False,
)
