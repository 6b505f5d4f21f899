"""Ranges for SNPE as MQBench writes them: a width and both ends, for activations.

    {"activation_encodings": {"<tensor>": [{"bitwidth": 8, "min": -2.7, "max": 2.8}]},
     "param_encodings": {}}

With b bits, codes are 0 .. 2^b - 1, the step is (max - min) / (2^b - 1) and the zero point
-min / step. An int8 quantizer of zero point z is the uint8 one of z + 128: it is written so and
reads back so. Parameters are never listed, except that MQBench takes weights of ConvTranspose and
MatMul that have one scale for activations: what a tensor is, the graph tells.

MQBench counts the bits of 255 codes as 7. A range with max = -min has an odd number of codes, so
it is no range of 2^b codes: it is -(2^b - 1) .. 2^b - 1 in a signed type of b + 1 bits. Ranges
with min > max, which some versions write for unsigned types, are refused.
"""

from __future__ import annotations

from typing import Any

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows
from onnxq.side_files.side_file import SideFile

_FIX = 'expected {"activation_encodings": {"<tensor>": [{"bitwidth", "min", "max"}]}}'
_WHAT = "an SNPE range file of MQBench"
_KEYS = {"bitwidth", "min", "max"}
_TOLERANCE = 1e-2
"""How far a zero point may be from a whole number: ends were computed in float32."""


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; both ends are exact, since scale * code fits a double."""
    found: dict[str, list[dict[str, Any]]] = {}
    refused: dict[str, str] = {}
    for row in table.of(Role.ACTIVATION):
        why = _refusal(row)
        if why is None and row.tensor in found:
            why = "it has several quantizers"
        if why is not None:
            refused[row.tensor] = why
            continue
        low, high = (float(end) for end in row.range)
        bits = rows.bits_of(row) or row.qtype.bits - 1
        found[row.tensor] = [{"bitwidth": bits, "min": low, "max": high}]
    if refused:
        fix = "use one scale per tensor and all codes of the type"
        raise rows.not_writable(refused, "SNPE ranges", fix)
    return strict_json.dump({"activation_encodings": found, "param_encodings": {}})


def _refusal(row: QParams) -> str | None:
    if row.axis is not None:
        return "one scale per channel"
    if row.readers is not None:
        return "only some of its readers see it quantized, and ranges are for all"
    if rows.bits_of(row) is None and not _is_odd(row):
        return f"codes {row.lo}..{row.hi} are not all codes of a number of bits"
    return None


def _is_odd(row: QParams) -> bool:
    """Whether the range is -127..127 or the like around zero point 0."""
    return row.is_symmetric and (row.lo, row.hi) == (-row.qtype.hi, row.qtype.hi)


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = Entry.parse(text, _WHAT, _FIX)
    document.only(("activation_encodings",), ("param_encodings",))
    if Entry.of(document.value.get("param_encodings", {}), "'param_encodings'", _FIX).value:
        raise LoadError(f"not {_WHAT}: 'param_encodings' is not empty", fix=_FIX)
    parts = TensorParts(model)
    table = QParamTable()
    group = Entry.of(document.value["activation_encodings"], "'activation_encodings'", _FIX)
    for name, entries in group.value.items():
        where = f"'activation_encodings', tensor '{name}'"
        if not isinstance(entries, list) or len(entries) != 1:
            raise LoadError(f"{where}: its encoding is not a list of one entry", fix=_FIX)
        entry = Entry.of(entries[0], where, _FIX)
        entry.only(_KEYS)
        row = _row(entry, name)
        table.add(row.with_(role=parts.role(name, row.qtype)))
    return table


def _row(entry: Entry, name: str) -> QParams:
    bits, low, high = entry.integer("bitwidth"), entry.number("min"), entry.number("max")
    if not low < high:
        raise entry.error(
            f"min {low:.9g} is not below max {high:.9g}: MQBench wraps unsigned zero points on "
            "some numpy versions; export again with 'onnxq convert'"
        )
    if rows.container(bits, False) is None:
        raise entry.error(f"{bits} bits are not a width onnxq knows")
    if abs(low + high) <= 1e-6 * high:
        top = (1 << bits) - 1
        if rows.container(bits + 1, True) is None:
            raise entry.error(f"{bits + 1} bits are not a width onnxq knows")
        row = rows.make_row(entry, name, bits + 1, True, high / top, 0, Role.ACTIVATION)
        return row.with_(lo=-top)
    step = (high - low) / ((1 << bits) - 1)
    zero_point = -low / step
    if abs(zero_point - round(zero_point)) > _TOLERANCE:
        raise entry.error(
            f"zero lies {zero_point:.3f} steps above min: with {bits} bits no code is exactly zero"
        )
    return rows.make_row(entry, name, bits, False, step, round(zero_point), Role.ACTIVATION)


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
