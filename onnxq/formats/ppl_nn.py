"""Parameters for ppl.nn's CUDA engine: ranges per tensor or channel, and a type per node.

    {"quant_info": {"<tensor>": {"bit_width": 8, "per_channel": false, "quant_flag": true,
                                 "sym": true, "scale": s, "zero_point": z, "tensor_min": ...,
                                 "tensor_max": ..., "q_min": -128, "q_max": 127}},
     "op_info": {"<node>": {"data_type": "INT8"}}}

The engine recomputes the scale as (tensor_max - tensor_min) / (2^bit_width - 1) and looks up most
keys without checking that they are there. So all keys are always written, and only full ranges of
codes are possible. PPQ writes the same file with two more keys, which have no meaning here. A
tensor with "quant_flag" false stays float.
"""

from __future__ import annotations

from typing import Any

import onnx_graphsurgeon as gs

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.affine_entry import AffineEntry
from onnxq.side_files.side_file import SideFile

_WHAT = "a ppl.nn quantization file"
_KEYS = ("bit_width", "per_channel", "scale", "zero_point", "tensor_min", "tensor_max")
_AFFINE = AffineEntry(*_KEYS[2:])
_MORE = ("sym", "quant_flag", "q_min", "q_max", "algorithm", "hash", "dominator")
_FIX = f'expected {{"quant_info": {{"<tensor>": {{{", ".join(_KEYS)}}}}}, "op_info": ...}}'


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; scales are exact."""
    parts = TensorParts(model)
    rows = side_rows.writable(
        table.of(Role.ACTIVATION, Role.WEIGHT),
        "ppl.nn parameters",
        lambda row: side_rows.partial_codes(row) or side_rows.axis_refusal(row, parts),
        "use all codes of a number of bits, one scale per tensor or output channel",
    )
    held = {row.tensor for row in rows}
    operators = {
        node.name: {"data_type": "FLOAT32" if held.isdisjoint(_tensors(node)) else "INT8"}
        for node in model.nodes()
        if node.name
    }
    info = {row.tensor: _entry(row) for row in rows}
    return strict_json.dump({"quant_info": info, "op_info": operators})


def _tensors(node: gs.Node) -> list[str]:
    return [t.name for t in (*node.inputs, *node.outputs)]


def _entry(row: QParams) -> dict[str, Any]:
    return {
        "algorithm": "onnxq",
        "bit_width": side_rows.bits_of(row),
        "per_channel": row.axis is not None,
        "quant_flag": True,
        "sym": row.is_symmetric,
        **_AFFINE.values(row),
        "q_min": row.lo,
        "q_max": row.hi,
    }


def _entries(text: str) -> dict[str, Entry]:
    document = Entry.parse(text, _WHAT, _FIX)
    document.only(("quant_info",), ("op_info",))
    Entry.of(document.value.get("op_info", {}), "'op_info'", _FIX)
    group = Entry.of(document.value["quant_info"], "'quant_info'", _FIX)
    found = {}
    for name, value in group.value.items():
        entry = found[name] = Entry.of(value, f"tensor '{name}'", _FIX)
        entry.only(_KEYS, _MORE)
    return found


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    parts = TensorParts(model)
    return QParamTable(
        [_row(name, e, parts) for name, e in _entries(text).items() if not _is_float(e)]
    )


def _is_float(entry: Entry) -> bool:
    return "quant_flag" in entry.value and not entry.choice("quant_flag", True, False)


def _row(name: str, entry: Entry, parts: TensorParts) -> QParams:
    bits, signed = entry.integer("bit_width"), _signed(entry)
    lo, hi = side_rows.checked_code_range(entry, bits, signed)
    for key, code in (("q_min", lo), ("q_max", hi)):
        if key in entry.value and entry.integer(key) != code:
            raise entry.error(f"'{key}' is {entry.integer(key)}, but {bits} bits have {code}")
    channels = entry.choice("per_channel", True, False)
    row = _AFFINE.read(entry, name, bits, signed, parts, channels=channels)
    if "sym" in entry.value and entry.choice("sym", True, False) and row.zero_point.any():
        raise entry.error("a zero point that is not 0, but 'sym' is true")
    return row


def _signed(entry: Entry) -> bool:
    """Whether codes are signed: by the lowest one, or else by symmetry."""
    if "q_min" in entry.value:
        return entry.integer("q_min") < 0
    return "sym" in entry.value and bool(entry.choice("sym", True, False))


def float_tensors(text: str) -> frozenset[str]:
    """The tensors that are listed, but not quantized."""
    return frozenset(name for name, entry in _entries(text).items() if _is_float(entry))


def _recognises(text: str) -> bool:
    return isinstance(strict_json.peek(text).get("quant_info"), dict)


FORMAT = SideFile(
    "ppl-nn",
    "ppl.nn (CUDA): scale, zero point and range per tensor or channel, a type per node",
    write,
    read,
    recognises=_recognises,
    detection='JSON with "quant_info"',
    narrow=False,
    float_tensors=float_tensors,
)
