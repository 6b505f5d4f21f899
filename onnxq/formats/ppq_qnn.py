"""Encodings for QNN as PPQ writes them: both groups, but neither version nor types.

    {"activation_encodings": {"<tensor>": [{"bitwidth": 8, "max": ..., "min": ..., "offset": 128,
                                            "scale": ...}]},
     "param_encodings": {"<weight>": [one entry per output channel]}}

The offset is the zero point itself, not its negative as in QNN's own tools. With b bits the
smallest value determines whether codes are signed: scale * (-2^(b-1) - offset) or scale * -offset.
Today's QNN rejects such files; it reads 'aimet-0.6.1'.
"""

from __future__ import annotations

from typing import Any

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.aimet import GROUPS, in_group, listed_entries
from onnxq.side_files.side_file import SideFile

_WHAT = "an encoding file of PPQ"
_KEYS = ("bitwidth", "max", "min", "offset", "scale")
_FIX = f"entries are {{{', '.join(_KEYS)}}}"


def write(table: QParamTable, model: Model) -> str:
    """The JSON text."""
    parts = TensorParts(model)
    rows = side_rows.writable(
        table.of(Role.ACTIVATION, Role.WEIGHT),
        "encodings of PPQ",
        lambda row: side_rows.partial_codes(row) or side_rows.axis_refusal(row, parts),
        "change these quantizers, or use the format 'onnxq', which can express them all",
    )
    return strict_json.dump(
        {key: {r.tensor: _entries(r) for r in rows if in_group(r, key)} for key in GROUPS}
    )


def _entries(row: QParams) -> list[dict[str, Any]]:
    low, high = row.range
    columns = (high, low, row.zero_point, row.scale)
    return [
        dict(zip(_KEYS, (side_rows.bits_of(row), *values), strict=True))
        for values in zip(*(column.reshape(-1).tolist() for column in columns), strict=True)
    ]


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = Entry.parse(text, _WHAT, _FIX)
    document.only(tuple(GROUPS))
    parts = TensorParts(model)
    groups = [(key, role, document.value[key]) for key, role in GROUPS.items()]
    return QParamTable(
        [_row(name, entries, role, parts) for name, role, entries in listed_entries(groups, _FIX)]
    )


def _row(name: str, entries: list[Entry], role: Role, parts: TensorParts) -> QParams:
    first = entries[0]
    for entry in entries:
        entry.only(_KEYS)
    bits = first.integer("bitwidth")
    side_rows.checked_code_range(first, bits, False)
    signed = _is_signed(first, bits)
    lo, hi = side_rows.code_range(bits, signed)
    scales = [entry.number("scale") for entry in entries]
    zeros = [entry.integer("offset") for entry in entries]
    for entry, scale, zero in zip(entries, scales, zeros, strict=True):
        if entry.integer("bitwidth") != bits:
            raise entry.error("'bitwidth' differs from that of entry 0")
        side_rows.check_end(entry, "min", entry.number("min"), scale, lo - zero)
        side_rows.check_end(entry, "max", entry.number("max"), scale, hi - zero)
    return side_rows.row_of_entries(first, name, bits, signed, scales, zeros, role, parts)


def _is_signed(entry: Entry, bits: int) -> bool:
    steps = entry.number("min") / (entry.number("scale") or 1.0)
    return abs(steps + entry.integer("offset")) > (1 << bits - 2)


def _recognises(content: str) -> bool:
    document = strict_json.peek(content)
    if set(document) != set(GROUPS):
        return False
    listed = [
        entry
        for group in document.values()
        if isinstance(group, dict)
        for entries in group.values()
        if isinstance(entries, list)
        for entry in entries
    ]
    keys = {"offset", "scale"}
    return bool(listed) and all(isinstance(e, dict) and keys <= set(e) for e in listed)


FORMAT = SideFile(
    "ppq-qnn",
    "QNN encodings in PPQ's form: offset is the zero point, no version",
    write,
    read,
    recognises=_recognises,
    detection='JSON with both groups of encodings, offset and scale, and no "version"',
    narrow=False,
)
