"""Dynamic ranges for TensorRT up to 10, as MQBench's loaders expect them.

    {"tensorrt": {"blob_range": {"<tensor>": absmax, ...}}}

TensorRT takes scale = absmax / 127, so absmax = 127 * scale whatever the trained lower bound is.
Activations only; TensorRT quantizes weights itself.
"""

from __future__ import annotations

from typing import Any

from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows
from onnxq.side_files.side_file import SideFile

_WHAT = "a TensorRT range file"
_FIX = 'expected {"tensorrt": {"blob_range": {"<tensor>": <absmax>, ...}}}'
_TOO_WIDE = 127.0 * 2.0**128
"""No scale in float32 has this range."""


def scales(table: QParamTable) -> dict[str, float]:
    """Scale per activation."""
    held = rows.writable(
        table.of(Role.ACTIVATION),
        "TensorRT ranges",
        _refusal,
        "TensorRT needs one int8 quantizer per tensor, with zero point 0: 'onnxq convert "
        "--backend tensorrt' rewrites activations if that is exact; its QDQ model contains the "
        "others",
    )
    return {row.tensor: float(row.scale) for row in held}


def _refusal(row: QParams) -> str | None:
    if row.qtype.name != "int8" or not row.is_symmetric:
        return f"{row.qtype} with zero point {row.zero_point.reshape(-1)[0]}"
    return rows.per_channel(row)


def row_of(name: str, scale: float, where: str) -> QParams:
    """A symmetric int8 activation; the error names its place in the file."""
    entry = Entry({}, where, _FIX)
    return rows.make_row(entry, name, 8, True, scale, 0, Role.ACTIVATION)


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; absmax is exact, since 127 * float32 fits a double."""
    ranges = {name: 127.0 * scale for name, scale in scales(table).items()}
    return strict_json.dump({"tensorrt": {"blob_range": ranges}})


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = Entry.parse(text, _WHAT, _FIX)
    document.only(("tensorrt",))
    inner = Entry.of(document.value["tensorrt"], "'tensorrt'", _FIX)
    inner.only(("blob_range",))
    return read_ranges(Entry.of(inner.value["blob_range"], "'blob_range'", _FIX).value)


def read_ranges(ranges: dict[str, Any]) -> QParamTable:
    """The rows of absmax per tensor."""
    table = QParamTable()
    for name, value in ranges.items():
        if not strict_json.is_number(value) or not 0 < value < _TOO_WIDE:
            raise LoadError(
                f"range of tensor '{name}' is {value!r}", fix="it must be a positive float32"
            )
        table.add(row_of(name, value / 127.0, f"range of tensor '{name}'"))
    return table


def _recognises(content: str) -> bool:
    inner = strict_json.peek(content).get("tensorrt")
    return isinstance(inner, dict) and "blob_range" in inner


FORMAT = SideFile(
    "tensorrt-ranges",
    "absmax per tensor as JSON (TensorRT <= 10)",
    write,
    read,
    recognises=_recognises,
    detection='JSON with {"tensorrt": {"blob_range": ...}}',
    weights=False,
)
