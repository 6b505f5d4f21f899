"""AIMET and QNN encodings, version 2.0.0: one list, in the words of ONNX's QuantizeLinear.

    {"version": "2.0.0",
     "encodings": [{"name": "<tensor>", "output_dtype": "uint8", "y_scale": s, "y_zero_point": z},
                   {"name": "<weight>", "output_dtype": "int8", "y_scale": [...], "axis": 0}]}

The zero point is that of the type, and left out if it is 0; "axis" and "block_size" mean the same
as in ONNX. There are no groups: a constant is a parameter, int32 is a bias. Scales of blocks may
have size 1 along an axis of the weight; they then apply to all its positions. Version 2.1.0 is
read as well: it differs in entries that onnxq rejects by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxq.analysis.tensor_roles import TensorParts
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
    for entry in _entries(text):
        if not _is_float(entry):
            table.add(_row(entry, parts))
    return table


def _entries(text: str) -> Iterator[Entry]:
    document = codes.document(text, READ_VERSIONS, ("encodings",))
    group = ("encodings", Role.ACTIVATION, document["encodings"])
    return (entry for _, entry in codes.named_entries([group], _FIX))


def _is_float(entry: Entry) -> bool:
    if not str(entry.value.get("output_dtype")).startswith("float"):
        return False
    entry.only(("name", "output_dtype"))
    return True


def _row(entry: Entry, parts: TensorParts) -> QParams:
    if "per_block_int_scale" in entry.value:
        raise entry.error("blocks whose scales are themselves quantized are not supported")
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
    if "block_size" in entry.value and block < 1:
        raise entry.error(f"'block_size' is {block}")
    if block:
        if axis is None:
            raise entry.error("'block_size' without 'axis'")
        scale, zero_point = (_spread(v, parts.shape(name), axis) for v in (scale, zero_point))
    role = parts.role(name, side_rows.container(entry, bits, signed))
    return side_rows.make_row(entry, name, bits, signed, scale, zero_point, role, axis, block)


def _spread(values: Array, shape: tuple[int, ...] | None, axis: int) -> Array:
    """Scales of blocks with the sizes of the weight along all axes but that of the blocks."""
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


FORMAT = SideFile(
    "aimet-2.0.0",
    "AIMET and QNN encodings 2.0.0: one list with ONNX's scale, zero point and axis",
    write,
    read,
    recognises=codes.HasVersion(READ_VERSIONS),
    detection='JSON with "version": "2.0.0" or "2.1.0"',
    versions=READ_VERSIONS,
    narrow=False,
    float_tensors=float_tensors,
)
