"""Scales for Vitis AI as MQBench's loaders expect them: activations, weights and biases.

    {"vitis": {"<tensor>": {"scale": 0.0078125}}}

All are int8 on -128..127 with zero point 0 and a power of two as scale: a DPU takes the fix
point -log2(scale) and shifts. One scale per tensor.
"""

from __future__ import annotations

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from onnxq.quant.scheme import QSpec
from onnxq.side_files import rows as side_rows
from onnxq.side_files.side_file import SideFile

_WHAT = "a Vitis AI scale file"
_FIX = 'expected {"vitis": {"<tensor>": {"scale": <power of two>}}}'
_GRID = QSpec(("int8",), symmetric=True, power_of_two=True, full_range=True)


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; powers of two are exact."""
    rows = side_rows.writable(
        table.of(Role.ACTIVATION, Role.WEIGHT),
        "Vitis AI scales",
        lambda row: side_rows.off_grid(row, _GRID),
        "use int8 on -128..127 with zero point 0 and one power of two per tensor",
    )
    return strict_json.dump({"vitis": {row.tensor: {"scale": float(row.scale)} for row in rows}})


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = Entry.parse(text, _WHAT, _FIX)
    document.only(("vitis",))
    parts = TensorParts(model)
    table = QParamTable()
    for name, value in Entry.of(document.value["vitis"], "'vitis'", _FIX).value.items():
        entry = Entry.of(value, f"tensor '{name}'", _FIX)
        entry.only(("scale",))
        row = side_rows.make_row(entry, name, 8, True, entry.number("scale"), 0)
        if why := side_rows.off_grid(row, _GRID):
            raise entry.error(why)
        table.add(side_rows.with_role(row, parts))
    return table


def _recognises(text: str) -> bool:
    return isinstance(strict_json.peek(text).get("vitis"), dict)


FORMAT = SideFile(
    "mqbench-vitis",
    "Vitis AI in MQBench's form: a power-of-two scale per activation, weight and bias",
    write,
    read,
    recognises=_recognises,
    detection='JSON with {"vitis": ...}',
    narrow=False,
)
