"""AIMET and QNN encodings, version 0.6.1: one list of entries per tensor.

    {"version": "0.6.1",
     "activation_encodings": {"<tensor>": [{"bitwidth": 8, "dtype": "int", "is_symmetric": "False",
                                            "min": ..., "max": ..., "scale": ..., "offset": ...}]},
     "param_encodings": {"<weight>": [one entry per output channel]}}

Booleans are the strings "True" and "False". The axis of several entries is not stored: it is the
output-channel axis of the layer that the weight belongs to. Consumers take scale and offset, so
these decide; min and max must agree with them. Older tools write -127..127 as offset -127 with
max = -min: that is read, but not written, since today's consumers would take it for another grid.
"""

from __future__ import annotations

from typing import Any

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import aimet as codes
from onnxq.side_files import rows as side_rows
from onnxq.side_files.side_file import SideFile

VERSION = "0.6.1"
_FIX = 'entries are {"bitwidth", "dtype", "is_symmetric", "min", "max", "scale", "offset"}'


def write(table: QParamTable, model: Model) -> str:
    """The JSON text."""
    parts = TensorParts(model)
    rows = codes.writable(
        table, VERSION, lambda row: codes.offset_refusal(row) or side_rows.axis_refusal(row, parts)
    )
    document: dict[str, Any] = {"version": VERSION, "producer": codes.PRODUCER}
    for key in codes.GROUPS:
        document[key] = {r.tensor: _entries(r) for r in rows if codes.in_group(r, key)}
    return strict_json.dump(document)


def _entries(row: QParams) -> list[dict[str, Any]]:
    low, high = row.range
    columns = (low, high, row.scale, codes.offset_of(row))
    return [
        {
            "bitwidth": side_rows.bits_of(row),
            "dtype": "int",
            "is_symmetric": str(row.qtype.signed),
            "min": least,
            "max": most,
            "scale": scale,
            "offset": offset,
        }
        for least, most, scale, offset in zip(
            *(column.reshape(-1).tolist() for column in columns), strict=True
        )
    ]


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    parts = TensorParts(model)
    table = QParamTable()
    for name, role, entries in codes.listed_entries(codes.groups(text, VERSION), _FIX):
        if not _are_float(entries):
            table.add(_row(name, entries, role, parts))
    return table


def _are_float(entries: list[Entry]) -> bool:
    for entry in entries:
        if entry.value.get("dtype") != "float":
            return False
        entry.only(("bitwidth", "dtype"))
    return True


def _row(name: str, entries: list[Entry], role: Role, parts: TensorParts) -> QParams:
    first = entries[0]
    for entry in entries:
        entry.only(("bitwidth", "dtype", "is_symmetric", "scale", "offset"), ("min", "max"))
        entry.choice("dtype", "int")
        entry.choice("is_symmetric", "True", "False")
        for key in ("bitwidth", "is_symmetric"):
            if entry.value[key] != first.value[key]:
                raise entry.error(f"'{key}' differs from that of entry 0")
    bits, signed = first.integer("bitwidth"), first.value["is_symmetric"] == "True"
    scales = [entry.number("scale") for entry in entries]
    offsets = [entry.integer("offset") for entry in entries]
    if signed:
        codes.check_symmetric(first, "is_symmetric", offsets)
    low, high = side_rows.checked_code_range(first, bits, signed)
    codes.check_offsets(first, offsets, bits)
    narrow = signed and all(_leaves_lowest_out(e, low) for e in entries)
    for entry, scale, offset in zip(entries, scales, offsets, strict=True):
        _check_ends(entry, scale, offset, high - low - narrow)
    zero_points = [low + narrow - offset for offset in offsets]
    row = side_rows.row_of_entries(first, name, bits, signed, scales, zero_points, role, parts)
    return row.with_(lo=low + 1) if narrow else row


def _leaves_lowest_out(entry: Entry, low: int) -> bool:
    """Whether the range is -127..127 as older tools write it."""
    if not {"min", "max"} <= set(entry.value) or entry.integer("offset") != low + 1:
        return False
    step = abs(entry.number("scale"))
    return abs(entry.number("min") + entry.number("max")) <= side_rows.END_TOLERANCE * step


def _check_ends(entry: Entry, scale: float, offset: int, steps: int) -> None:
    """Reject min and max that contradict scale and offset."""
    for key, code in (("min", offset), ("max", offset + steps)):
        if key in entry.value:
            side_rows.check_end(entry, key, entry.number(key), scale, code, "offset")


def float_tensors(text: str) -> frozenset[str]:
    """The tensors with an encoding of dtype float."""
    entries = codes.listed_entries(codes.groups(text, VERSION), _FIX)
    return frozenset(name for name, _, listed in entries if _are_float(listed))


FORMAT = SideFile(
    "aimet-0.6.1",
    "AIMET and QNN encodings 0.6.1: activations and parameters by name",
    write,
    read,
    recognises=codes.HasVersion((VERSION,)),
    detection='JSON with "version": "0.6.1"',
    versions=(VERSION,),
    narrow=False,
    float_tensors=float_tensors,
)
