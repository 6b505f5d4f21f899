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
from onnxq.quant.qparams import Role
from onnxq.quant.scheme import QSpec
from onnxq.side_files import rows
from onnxq.side_files.side_file import SideFile

_WHAT = "a TensorRT range file"
_FIX = 'expected {"tensorrt": {"blob_range": {"<tensor>": <absmax>, ...}}}'
_GRID = QSpec(("int8",), symmetric=True)
_TOO_WIDE = 127.0 * 2.0**128
"""The smallest range beyond all scales in float32."""


def scales(table: QParamTable) -> dict[str, float]:
    """The scale of each activation."""
    held = rows.writable(
        table.of(Role.ACTIVATION),
        "TensorRT ranges",
        lambda row: rows.off_grid(row, _GRID),
        "TensorRT needs one int8 quantizer per tensor, with zero point 0: 'onnxq convert "
        "--backend tensorrt' rewrites activations if that is exact; its QDQ model contains the "
        "others",
    )
    return {row.tensor: float(row.scale) for row in held}


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
        where = f"range of tensor '{name}'"
        if not strict_json.is_number(value) or not 0 < value < _TOO_WIDE:
            raise LoadError(f"{where} is {value!r}", fix="it must be a positive float32")
        table.add(rows.make_row(Entry({}, where, _FIX), name, 8, True, value / 127.0, 0))
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
