"""Dynamic ranges for TensorRT up to 10, as MQBench's loaders expect them.

    {"tensorrt": {"blob_range": {"<tensor>": absmax, ...}}}

TensorRT takes scale = absmax / 127, so absmax = 127 * scale whatever the trained lower bound is.
Activations only; TensorRT quantizes weights itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq import side_rows, strict_json
from onnxq.errors import LoadError, QParamsError
from onnxq.graph import Model
from onnxq.qparam_table import QParamTable
from onnxq.qparams import QParams, Role
from onnxq.qtype import qtype
from onnxq.side_file import SideFile

_WHAT = "a TensorRT range file"
_FIX = 'expected {"tensorrt": {"blob_range": {"<tensor>": <absmax>, ...}}}'
_TOO_WIDE = 127.0 * 2.0**128
"""No scale in float32 has this range."""


def scales(table: QParamTable) -> dict[str, float]:
    """Scale per activation."""
    held = side_rows.writable(
        table.of(Role.ACTIVATION),
        "TensorRT ranges",
        _refusal,
        "TensorRT wants one int8 quantizer per tensor, with zero point 0: 'onnxq convert --backend "
        "tensorrt' brings activations there where that is exact; its QDQ model holds the others",
    )
    return {row.tensor: float(row.scale) for row in held}


def _refusal(row: QParams) -> str | None:
    if row.qtype.name != "int8" or not row.is_symmetric:
        return f"{row.qtype} with zero point {row.zero_point.reshape(-1)[0]}"
    return side_rows.per_channel(row)


def rows(found: dict[str, float]) -> QParamTable:
    """A table of symmetric int8 activations with these scales."""
    table = QParamTable()
    for name, scale in found.items():
        try:
            table.add(QParams(name, qtype("int8"), np.asarray(scale), np.zeros(())))
        except QParamsError as error:
            raise LoadError(error.what, fix=error.fix) from error
    return table


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; absmax is exact, since 127 * float32 fits a double."""
    ranges = {name: 127.0 * scale for name, scale in scales(table).items()}
    return strict_json.dump({"tensorrt": {"blob_range": ranges}})


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = strict_json.parse(text, _WHAT, _FIX)
    try:
        entries = list(document["tensorrt"]["blob_range"].items())
    except (LookupError, TypeError, AttributeError) as error:
        raise LoadError(f"not {_WHAT}: {error!r}", fix=_FIX) from error
    return read_ranges(dict(entries))


def read_ranges(ranges: dict[str, Any]) -> QParamTable:
    """The rows of absmax per tensor."""
    found: dict[str, float] = {}
    for name, value in ranges.items():
        if not strict_json.is_number(value) or not 0 < value < _TOO_WIDE:
            raise LoadError(
                f"range of tensor '{name}' is {value!r}", fix="it must be a positive float32"
            )
        found[name] = value / 127.0
    return rows(found)


def _recognises(content: str) -> bool:
    document = strict_json.peek(content)
    return (
        isinstance(document, dict)
        and isinstance(document.get("tensorrt"), dict)
        and "blob_range" in document["tensorrt"]
    )


FORMAT = SideFile(
    "tensorrt-ranges",
    "absmax per tensor as JSON (TensorRT <= 10)",
    write,
    read,
    recognises=_recognises,
    detection='JSON with {"tensorrt": {"blob_range": ...}}',
    weights=False,
)
