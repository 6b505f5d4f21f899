"""Tengine's scale file for its uint8 mode: text, one activation a line.

    <tensor> <scale> <zero point>

Tengine splits at spaces, so names may hold none. It quantizes weights itself, from their smallest
and largest value; lines for weights, which some tools write, are read, but not written. Tengine
runs Relu inside the convolution before it and looks for a line under the convolution's output, so
that gets the line of the Relu's (or of the Clip's from 0 up). An int8 quantizer of zero point z is
the uint8 one of z + 128: it is written so and reads back so.
"""

from __future__ import annotations

import re

from onnxq.analysis.implied_ranges import with_implied, without_implied
from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.parsing.decimal_text import integer, number
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.side_file import SideFile

_FIX = "lines are '<tensor> <scale> <zero point>'"
_LINE = re.compile(r"(\S+) (\S+) (\S+)")
_FUNCTIONS = ("Relu", "Clip")
_LAYERS = ("Conv",)


def write(table: QParamTable, model: Model) -> str:
    """The text; scales are the shortest decimals that read back as they are."""
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
    rows: dict[str, QParams] = {}
    for at, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line:
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise LoadError(f"line {at} is not '<tensor> <scale> <zero point>'", fix=_FIX)
        name, scale, zero = found.groups()
        entry = Entry({}, f"line {at}, tensor '{name}'", _FIX)
        if name in rows:
            raise entry.error("it has a line already")
        row = side_rows.make_row(
            entry,
            name,
            8,
            False,
            entry.decimal("scale", scale),
            entry.whole_decimal("zero point", zero),
            Role.ACTIVATION,
        )
        rows[name] = side_rows.with_role(row, parts)
    return without_implied(QParamTable(list(rows.values())), model, _FUNCTIONS, _LAYERS)


def _recognises(content: str) -> bool:
    lines = [_LINE.fullmatch(line.strip()) for line in content.split("\n") if line.strip()]
    found = [line.groups() for line in lines if line is not None]
    sound = (number(scale) is not None and integer(zero) is not None for _, scale, zero in found)
    return len(found) == len(lines) and any(sound)


FORMAT = SideFile(
    "tengine-scale",
    "Tengine's scale file: scale and zero point per activation (uint8)",
    write,
    read,
    recognises=_recognises,
    detection="text of lines '<tensor> <scale> <zero point>'",
    suffix=".scale",
    weights=False,
    narrow=False,
)
