"""RKNN's hybrid quantization file (`.quantization.cfg`): YAML of one fixed layout.

    custom_quantize_layers: {}
    quantize_parameters:
        <tensor>:
            qtype: asym
            qmethod: layer
            dtype: int8
            min: [-5.8]
            max: [5.9]
            scale: [0.0458]
            zero_point: [-1]
            ori_min: [-5.8]
            ori_max: [5.9]

Zero points are those of "dtype"; "qmethod: channel" has one number per output channel of the layer
that the weight belongs to. Layers that "custom_quantize_layers" sets to float16 stay float. Only
this layout is read, with lists on one line or as items below their key, and no YAML in general.
"""

from __future__ import annotations

import re
from typing import Any

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.affine_entry import AffineEntry
from onnxq.side_files.side_file import SideFile

_FIX = "give a .quantization.cfg as RKNN's hybrid quantization writes it"
_CUSTOM, _PARAMETERS = "custom_quantize_layers", "quantize_parameters"
_KEYS = ("qtype", "qmethod", "dtype", "min", "max", "scale", "zero_point")
_AFFINE = AffineEntry("scale", "zero_point", "min", "max")
_MORE = ("ori_min", "ori_max")
_FLOATS = ("float16", "float32", "bfloat16")
_PLAIN = re.compile(r"[A-Za-z_/.][-\w/.:()]*(?<!:)")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_LINE = re.compile(r"( *)(- .*|(?:'(?:[^']|'')*'|.+?):(?: (.*))?)")


def write(table: QParamTable, model: Model) -> str:
    """The text; numbers are the shortest decimals that read back unchanged."""
    parts = TensorParts(model)
    rows = side_rows.writable(
        table.of(Role.ACTIVATION, Role.WEIGHT),
        "RKNN parameters",
        lambda row: _refusal(row, parts),
        "use all codes of an integer type, one scale per tensor or output channel",
    )
    lines = [f"{_CUSTOM}: {{}}", f"{_PARAMETERS}:" if rows else f"{_PARAMETERS}: {{}}"]
    for row in rows:
        values = _AFFINE.values(row)
        lists = {key: values[key.removeprefix("ori_")] for key in (*_KEYS[3:], *_MORE)}
        lines.append(f"    {_key(row.tensor)}:")
        lines.append("        qtype: asym")
        lines.append(f"        qmethod: {'layer' if row.axis is None else 'channel'}")
        lines.append(f"        dtype: {row.qtype}")
        for key, value in lists.items():
            numbers = ", ".join(map(_number, value if isinstance(value, list) else [value]))
            lines.append(f"        {key}: [{numbers}]")
    return "\n".join(lines) + "\n"


def _refusal(row: QParams, parts: TensorParts) -> str | None:
    if not row.tensor or not row.tensor.isprintable():
        return "its name cannot be printed"
    if row.is_narrow or row.qtype.floating:
        return f"codes {row.lo}..{row.hi} are not all codes of {row.qtype}"
    return side_rows.axis_refusal(row, parts)


def _key(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.lower() not in _WORDS:
        return name
    return "'" + name.replace("'", "''") + "'"


def _number(value: float) -> str:
    """A number that YAML reads as one: its floats have a point before the exponent."""
    text = repr(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    parts = TensorParts(model)
    document = _document(text)
    left_out = _left_out(document)
    return QParamTable(
        [
            _row(name, Entry.of(value, f"tensor '{name}'", _FIX), parts)
            for name, value in document[_PARAMETERS].items()
            if name not in left_out
        ]
    )


def _row(name: str, entry: Entry, parts: TensorParts) -> QParams:
    entry.only(_KEYS, _MORE)
    kind = re.fullmatch(r"(u?)int([0-9]{1,2})", str(entry.value["dtype"]))
    if kind is None:
        raise entry.error(f"'dtype' is {entry.value['dtype']}, which is not an integer type")
    bits, signed = int(kind[2]), not kind[1]
    channels = entry.choice("qmethod", "layer", "channel") == "channel"
    row = _AFFINE.read(entry, name, bits, signed, parts, channels=channels, lists=True)
    if entry.choice("qtype", "asym", "sym") == "sym" and row.zero_point.any():
        raise entry.error("a zero point that is not 0, but qtype sym")
    return row


def _document(text: str) -> dict[str, dict[str, Any]]:
    """The two sections; tensors as objects of strings and lists of numbers."""
    found: dict[str, dict[str, Any]] = {}
    section: dict[str, Any] = {}
    tensor: dict[str, Any] = {}
    key = ""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip()
        if not line or line.lstrip().startswith("#"):
            continue
        at = Entry({}, f"line {number}", _FIX)
        parsed = _LINE.fullmatch(line)
        if parsed is None:
            raise at.error("it is not '<key>: <value>'")
        indent, body, value = len(parsed[1]), parsed[2], parsed[3]
        if body.startswith("- "):
            if indent < 8 or not isinstance(tensor.get(key), list):
                raise at.error("an item without a key above it")
            tensor[key].append(at.decimal("item", body[2:].strip()))
            continue
        if value is not None and value.startswith("[") and not value.endswith("]"):
            raise at.error("its list does not end; is the file complete?")
        name = body if value is None else body[: -len(value) - 1]
        name = _unquoted(name.removesuffix(":"))
        if indent == 0:
            _new(found, name, section := {}, at)
            if name not in (_CUSTOM, _PARAMETERS) or value not in (None, "{}"):
                raise at.error(f"'{body}' does not belong here")
        elif indent == 4 and found:
            tensor = {}
            _new(section, name, tensor if value is None else value, at)
        elif indent == 8 and section:
            key = name
            _new(tensor, name, [] if value is None else _value(value, at), at)
        else:
            raise at.error(f"its indentation is {indent}, not 0, 4 or 8")
    for name in (_CUSTOM, _PARAMETERS):
        if name not in found:
            raise LoadError(f"the file has no section '{name}'", fix=_FIX)
    return found


def _new(where: dict[str, Any], key: str, value: Any, at: Entry) -> None:
    if key in where:
        raise at.error(f"duplicate key '{key}'")
    where[key] = value


def _unquoted(text: str) -> str:
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        return text[1:-1].replace("''", "'")
    return text


def _value(text: str, at: Entry) -> list[float] | str:
    """A list of numbers, or a word."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return _unquoted(text)
    inner = text[1:-1].strip()
    return [at.decimal("item", part.strip()) for part in inner.split(",") if inner]


def _left_out(document: dict[str, dict[str, Any]]) -> set[str]:
    """The tensors whose layers stay float."""
    for name, value in document[_CUSTOM].items():
        if value not in (*_FLOATS, "int8", "int16", "int4"):
            raise LoadError(f"'{_CUSTOM}', '{name}': {value!r} is not a type", fix=_FIX)
    return {name for name, value in document[_CUSTOM].items() if value in _FLOATS}


def float_tensors(text: str) -> frozenset[str]:
    """The tensors that "custom_quantize_layers" sets to a float type."""
    return frozenset(_left_out(_document(text)))


def _recognises(content: str) -> bool:
    return re.search(rf"^{_PARAMETERS}:", content, re.MULTILINE) is not None


FORMAT = SideFile(
    "rknn-hybrid",
    "RKNN's hybrid quantization file: scale, zero point and range per tensor or channel",
    write,
    read,
    recognises=_recognises,
    detection="text with a line 'quantize_parameters:'",
    suffix=".quantization.cfg",
    narrow=False,
    float_tensors=float_tensors,
)
