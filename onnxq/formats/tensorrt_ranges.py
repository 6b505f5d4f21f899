"""Dynamic ranges for TensorRT up to 10, as MQBench's loaders expect them.

    {"tensorrt": {"blob_range": {"<tensor>": absmax, ...}}}

TensorRT takes scale = absmax / 127, so absmax = 127 * scale whatever the trained lower bound is
(128 * scale, as MQBench writes for -128..127, is 0.8 % too large). Activations only; TensorRT
quantizes weights itself.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from onnxq.errors import LoadError, QParamsError
from onnxq.graph import Model
from onnxq.qparam_table import QParamTable
from onnxq.qparams import QParams, Role
from onnxq.qtype import qtype
from onnxq.side_file import SideFile

_TOO_WIDE = 127.0 * 2.0**128
"""No scale in float32 has this range."""


def scales(table: QParamTable) -> dict[str, float]:
    """Scale per activation, the widest where a tensor has several."""
    found: dict[str, float] = {}
    for row in table.of(Role.ACTIVATION):
        scale = float(np.max(row.scale))
        found[row.tensor] = max(found.get(row.tensor, 0.0), scale)
    return found


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
    return json.dumps({"tensorrt": {"blob_range": ranges}}, indent=1, ensure_ascii=False) + "\n"


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    fix = 'expected {"tensorrt": {"blob_range": {"<tensor>": <absmax>, ...}}}'
    try:
        ranges = json.loads(text, object_pairs_hook=_unique)["tensorrt"]["blob_range"]
        entries = list(ranges.items())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise LoadError(f"not a TensorRT range file: {error!r}", fix=fix) from error
    found: dict[str, float] = {}
    for name, value in entries:
        if type(value) not in (int, float) or not 0 < value < _TOO_WIDE:
            raise LoadError(
                f"range of tensor '{name}' is {value!r}", fix="it must be a positive float32"
            )
        found[name] = value / 127.0
    return rows(found)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; of two ranges for one tensor JSON itself would silently take the last."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"tensor '{twice}' stands twice")
    return found


FORMAT = SideFile("tensorrt-ranges", "absmax per tensor as JSON (TensorRT <= 10)", write, read)
