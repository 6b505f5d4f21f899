"""Ranges for SNPE as MQBench writes them: a width and both ends, for activations.

    {"activation_encodings": {"<tensor>": [{"bitwidth": 8, "min": -2.7, "max": 2.8}]},
     "param_encodings": {}}

With b bits, codes are 0 .. 2^b - 1, the step is (max - min) / (2^b - 1) and the zero point
-min / step. An int8 quantizer with zero point z is written, and read back, as the uint8 one with
z + 128. Parameters are never listed, except that MQBench treats weights of ConvTranspose and MatMul
with one scale as activations: the graph determines the role of a tensor.

MQBench counts the bits of 255 codes as 7. A range with max = -min has an odd number of codes, so
it is no range of 2^b codes: it is -(2^b - 1) .. 2^b - 1 in a signed type of b + 1 bits. Ranges
with min > max, which some versions write for unsigned types, are rejected.
"""

from __future__ import annotations

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows
from onnxq.side_files.aimet import listed_entries
from onnxq.side_files.side_file import SideFile

_FIX = 'expected {"activation_encodings": {"<tensor>": [{"bitwidth", "min", "max"}]}}'
_WHAT = "an SNPE range file of MQBench"
_KEYS = {"bitwidth", "min", "max"}
_TOLERANCE = 1e-2
"""How far a zero point may be from an integer: the ends were computed in float32."""


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; both ends are exact, since scale * code fits a double."""
    held = rows.writable(
        table.of(Role.ACTIVATION),
        "SNPE ranges",
        _refusal,
        "use one scale per tensor and all codes of the type",
    )
    found = {row.tensor: [_entry(row)] for row in held}
    return strict_json.dump({"activation_encodings": found, "param_encodings": {}})


def _entry(row: QParams) -> dict[str, float]:
    low, high = (float(end) for end in row.range)
    return {"bitwidth": rows.bits_of(row) or row.qtype.bits - 1, "min": low, "max": high}


def _refusal(row: QParams) -> str | None:
    return rows.per_channel(row) or (None if _is_odd(row) else rows.partial_codes(row))


def _is_odd(row: QParams) -> bool:
    """Whether the range is -127..127 or the like around zero point 0."""
    ends = (-row.qtype.hi, row.qtype.hi)
    return row.is_symmetric and not row.qtype.floating and (row.lo, row.hi) == ends


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = Entry.parse(text, _WHAT, _FIX)
    document.only(("activation_encodings",), ("param_encodings",))
    if Entry.of(document.value.get("param_encodings", {}), "'param_encodings'", _FIX).value:
        raise LoadError(f"not {_WHAT}: 'param_encodings' is not empty", fix=_FIX)
    parts = TensorParts(model)
    table = QParamTable()
    group = ("activation_encodings", Role.ACTIVATION, document.value["activation_encodings"])
    for name, _, entries in listed_entries([group], _FIX):
        if len(entries) != 1:
            raise entries[0].error(f"tensor '{name}' has {len(entries)} entries, not one")
        entries[0].only(_KEYS)
        table.add(rows.with_role(_row(entries[0], name), parts))
    return table


def _row(entry: Entry, name: str) -> QParams:
    bits, low, high = entry.integer("bitwidth"), entry.number("min"), entry.number("max")
    if not low < high:
        raise entry.error(
            f"min {low:.9g} is not below max {high:.9g}: MQBench wraps unsigned zero points on "
            "some numpy versions; export again with 'onnxq convert'"
        )
    _, top = rows.checked_code_range(entry, bits, False)
    if abs(low + high) <= 1e-6 * high:
        return rows.make_row(entry, name, bits + 1, True, high / top, 0).with_(lo=-top)
    step = (high - low) / top
    zero_point = -low / step
    if abs(zero_point - round(zero_point)) > _TOLERANCE:
        raise entry.error(
            f"zero lies {zero_point:.3f} steps above min: with {bits} bits no code is exactly zero"
        )
    return rows.make_row(entry, name, bits, False, step, round(zero_point))


def _recognises(content: str) -> bool:
    document = strict_json.peek(content)
    if "version" in document:
        return False
    group = document.get("activation_encodings")
    if not isinstance(group, dict) or document.get("param_encodings"):
        return False
    listed = [e for entries in group.values() if isinstance(entries, list) for e in entries]
    return all(isinstance(e, dict) and set(e) <= _KEYS for e in listed)


FORMAT = SideFile(
    "mqbench-snpe",
    "ranges for SNPE in MQBench's form: width, min and max per activation",
    write,
    read,
    recognises=_recognises,
    detection='JSON with "activation_encodings" of bitwidth, min and max, and no "version"',
    weights=False,
)
