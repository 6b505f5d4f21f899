"""Parameters for PPL (W8A16) as MQBench's loaders expect them: activations and weights.

    {"ppl": {"<tensor>": {"step": 8.4e-05, "zero_point": 32197, "min": -2.7, "max": 2.8,
                          "bit": 16, "type": "biased"}}}

With b bits codes are 0 .. 2^b - 1 and x = step * (q - zero_point). With one scale per channel,
step, zero_point, min and max are lists, along the output channels of the layer that the weight
belongs to. An int8 quantizer with zero point z is written, and read back, as the uint8 one with
z + 128.

MQBench's newer branch truncates 16-bit zero points to 8 bits; such files are read unchanged, since
their ends agree with the wrong zero point.
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
from onnxq.side_files.affine_entry import AffineEntry
from onnxq.side_files.side_file import SideFile

_WHAT = "a PPL parameter file"
_KEYS = ("step", "zero_point", "min", "max", "bit", "type")
_AFFINE = AffineEntry(*_KEYS[:4])
_FIX = f'expected {{"ppl": {{"<tensor>": {{{", ".join(_KEYS)}}}}}}}'


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; steps are exact."""
    parts = TensorParts(model)
    rows = side_rows.writable(
        table.of(Role.ACTIVATION, Role.WEIGHT),
        "PPL parameters",
        lambda row: side_rows.partial_codes(row) or side_rows.axis_refusal(row, parts),
        "use all codes of 8 or 16 bits, one scale per tensor or output channel",
    )
    return strict_json.dump({"ppl": {row.tensor: _entry(row) for row in rows}})


def _entry(row: QParams) -> dict[str, Any]:
    shifted = side_rows.unsigned(row)
    return {**_AFFINE.values(shifted), "bit": side_rows.bits_of(shifted), "type": "biased"}


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = Entry.parse(text, _WHAT, _FIX)
    document.only(("ppl",))
    parts = TensorParts(model)
    group = Entry.of(document.value["ppl"], "'ppl'", _FIX)
    return QParamTable([_row(name, value, parts) for name, value in group.value.items()])


def _row(name: str, value: Any, parts: TensorParts) -> QParams:
    entry = Entry.of(value, f"tensor '{name}'", _FIX)
    entry.only(_KEYS)
    entry.choice("type", "biased")
    bits, channels = entry.integer("bit"), isinstance(value["step"], list)
    return _AFFINE.read(entry, name, bits, False, parts, channels=channels)


def _recognises(text: str) -> bool:
    return isinstance(strict_json.peek(text).get("ppl"), dict)


FORMAT = SideFile(
    "mqbench-ppl",
    "PPL W8A16 in MQBench's form: step, zero point and range per tensor or channel",
    write,
    read,
    recognises=_recognises,
    detection='JSON with {"ppl": ...}',
    narrow=False,
)
