"""AIMET and QNN encodings, version 2.0.0: one list, in the words of ONNX's QuantizeLinear.

    {"version": "2.0.0",
     "encodings": [{"name": "<tensor>", "output_dtype": "uint8", "y_scale": s, "y_zero_point": z},
                   {"name": "<weight>", "output_dtype": "int8", "y_scale": [...], "axis": 0}]}

The zero point is that of the type, and left out where it is 0; "axis" and "block_size" mean what
they do in ONNX. There are no groups: a constant is a parameter, int32 is a bias. Scales of blocks
may have one position along an axis where the weight has more; they then serve all of them.
Version 2.1.0 is read as well: it differs in entries that onnxq refuses by name.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.side_files import aimet as codes
from onnxq.side_files import rows as side_rows
from onnxq.side_files.side_file import SideFile

VERSION = "2.0.0"
READ_VERSIONS = (VERSION, "2.1.0")
_FIX = 'entries are {"name", "output_dtype", "y_scale"}, with "y_zero_point", "axis", "block_size"'
_WHAT = f"an encoding file of version {VERSION}"
_TYPE = re.compile(r"(u?)int([0-9]{1,2})")


def write(table: QParamTable, model: Model) -> str:
    """The JSON text."""
    rows = codes.writable(table, VERSION, lambda row: None)
    document = {
        "version": VERSION,
        "producer": codes.PRODUCER,
        "encodings": [_entry(row) for row in rows],
    }
    return strict_json.dump(document)


def _entry(row: QParams) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": row.tensor,
        "output_dtype": f"{'int' if row.qtype.signed else 'uint'}{side_rows.bits_of(row)}",
        "y_scale": row.scale.tolist(),
    }
    if np.any(row.zero_point):
        entry["y_zero_point"] = row.zero_point.tolist()
    if row.axis is not None:
        entry["axis"] = row.axis
    if row.block:
        entry["block_size"] = row.block
    return entry


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    parts = TensorParts(model)
    table = QParamTable()
    seen: set[str] = set()
    for entry in _entries(text):
        if entry.text("name") in seen:
            raise codes.twice(entry.where, entry.text("name"))
        seen.add(entry.text("name"))
        if not _is_float(entry):
            table.add(_row(entry, parts))
    return table


def _entries(text: str) -> list[Entry]:
    document = strict_json.parse(text, _WHAT, _FIX)
    if not isinstance(document, dict) or document.get("version") not in READ_VERSIONS:
        raise LoadError(f"not {_WHAT}: key 'version' does not say so", fix=_FIX)
    listed = document.get("encodings")
    if not isinstance(listed, list):
        raise LoadError(f"not {_WHAT}: key 'encodings' is not a list", fix=_FIX)
    for key in document:
        if "encoding" in key and key != "encodings":
            raise LoadError(f"unknown key '{key}' at the top of the encodings", fix=_FIX)
    found = []
    for number, value in enumerate(listed):
        entry = Entry.of(value, f"'encodings', entry {number}", _FIX)
        if isinstance(value.get("name"), str):
            entry = Entry(value, f"'encodings', tensor '{value['name']}'", _FIX)
        if "per_block_int_scale" in value:
            raise entry.error("blocks whose scales are themselves quantized are not supported")
        for key in ("name", "output_dtype"):
            if key not in value:
                raise entry.error(f"key '{key}' is missing")
        found.append(entry)
    return found


def _is_float(entry: Entry) -> bool:
    if not entry.text("output_dtype").startswith("float"):
        return False
    entry.only(("name", "output_dtype"))
    return True


def _row(entry: Entry, parts: TensorParts) -> QParams:
    entry.only(("name", "output_dtype", "y_scale"), ("y_zero_point", "axis", "block_size"))
    named = _TYPE.fullmatch(entry.text("output_dtype"))
    if named is None:
        raise entry.error(f"'output_dtype' is '{entry.text('output_dtype')}', not like 'uint8'")
    bits, signed, name = int(named[2]), not named[1], entry.text("name")
    scale = entry.array("y_scale")
    zero_point = np.zeros(scale.shape, np.int64)
    if "y_zero_point" in entry.value:
        zero_point = entry.whole_array("y_zero_point")
    if zero_point.shape != scale.shape:
        raise entry.error(f"y_scale has shape {scale.shape}, y_zero_point {zero_point.shape}")
    axis = entry.integer("axis") if "axis" in entry.value else None
    block = entry.integer("block_size") if "block_size" in entry.value else 0
    if block < 0 or ("block_size" in entry.value and not block):
        raise entry.error(f"'block_size' is {block}")
    if block:
        if axis is None:
            raise entry.error("'block_size' without 'axis'")
        scale, zero_point = (_spread(v, parts.shape(name), axis) for v in (scale, zero_point))
    kind = side_rows.container(bits, signed)
    role = Role.ACTIVATION if kind is None else parts.role(name, kind)
    return side_rows.make_row(entry, name, bits, signed, scale, zero_point, role, axis, block)


def _spread(values: Array, shape: tuple[int, ...] | None, axis: int) -> Array:
    """Scales of blocks with as many positions as the weight, along all axes but that of blocks."""
    if shape is None or values.ndim != len(shape):
        return values
    axis %= len(shape)
    full = tuple(
        size if a != axis and values.shape[a] == 1 else values.shape[a]
        for a, size in enumerate(shape)
    )
    return np.broadcast_to(values, full)


def float_tensors(text: str) -> frozenset[str]:
    """The tensors with a float type."""
    return frozenset(entry.text("name") for entry in _entries(text) if _is_float(entry))


def _recognises(text: str) -> bool:
    return strict_json.peek(text).get("version") in READ_VERSIONS


FORMAT = SideFile(
    "aimet-2.0.0",
    "AIMET and QNN encodings 2.0.0: one list with ONNX's scale, zero point and axis",
    write,
    read,
    recognises=_recognises,
    detection='JSON with "version": "2.0.0" or "2.1.0"',
    versions=READ_VERSIONS,
    narrow=False,
    float_tensors=float_tensors,
)
