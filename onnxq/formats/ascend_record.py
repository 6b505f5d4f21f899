"""Records for Ascend's AMCT: the grids of a layer's input and weight, as protobuf text.

    record {
      key: "<node>"
      value {
        scale_d: 0.0458
        offset_d: -128
        scale_w: 0.0028
        offset_w: 0
        channels: 3
        height: 16
        width: 16
      }
    }

All codes are int8. scale_w and offset_w occur once, or once per output channel. Only layers with a
weight have a record, and it contains neither their outputs nor the inputs of other operators: a
tensor is quantized for those layers alone. channels, height and width are those of the input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx_graphsurgeon as gs

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.edit import read_by
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.operators.weight_axis import LINEAR_OPS
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.operator_rows import OperatorRows
from onnxq.side_files.side_file import SideFile

_FIX = "give a record file as AMCT writes it"
_SCALES, _OFFSETS = ("scale_d", "scale_w"), ("offset_d", "offset_w")
_SIZES = ("channels", "height", "width")
_LINE = re.compile(r"(record|value) \{|\}|(key): \"(.+)\"|(\w+): (\S+)")


def write(table: QParamTable, model: Model) -> str:
    """The text; scales are the shortest decimals that read back unchanged."""
    parts = TensorParts(model)
    layers = [n for n in model.nodes(*LINEAR_OPS) if is_constant(n.inputs[1])]
    given = {row.tensor for row in table.of(Role.ACTIVATION, Role.WEIGHT)}
    held = [n for n in layers if n.name and all(t.name in given for t in n.inputs[:2])]
    recorded = {read_by(node, index) for node in held for index in (0, 1)}
    rows = side_rows.writable(
        table.of(Role.ACTIVATION, Role.WEIGHT),
        "records of AMCT",
        lambda row: _refusal(row, parts, recorded),
        "use int8 for inputs and weights of layers and nothing else, and named nodes",
    )
    by_name = {row.tensor: row for row in rows}
    return "".join(_record(n, *(by_name[t.name] for t in n.inputs[:2])) for n in held)


def _refusal(row: QParams, parts: TensorParts, recorded: set[Reader]) -> str | None:
    if row.qtype.name != "int8" or row.is_narrow:
        return f"codes {row.lo}..{row.hi} of {row.qtype}, not those of int8"
    readers = side_rows.readers_of(row, parts)
    if not readers or not readers <= recorded:
        return "not all its consumers are layers whose input and weight are both quantized"
    return side_rows.axis_refusal(row, parts)


def _record(node: gs.Node, data: QParams, weight: QParams) -> str:
    lines = [f"scale_d: {float(data.scale)!r}", f"offset_d: {int(data.zero_point)}"]
    lines += [f"scale_w: {scale!r}" for scale in weight.scale.reshape(-1).tolist()]
    lines += [f"offset_w: {zero}" for zero in weight.zero_point.reshape(-1).tolist()]
    shape = node.inputs[0].shape or ()
    if len(shape) == 4 and all(isinstance(size, int) for size in shape[1:]):
        lines += [f"{name}: {size}" for name, size in zip(_SIZES, shape[1:], strict=True)]
    body = "".join(f"    {line}\n" for line in lines)
    return f'record {{\n  key: "{node.name}"\n  value {{\n{body}  }}\n}}\n'


def _records(text: str) -> Iterator[tuple[str, Entry]]:
    """The key of each record, and its values as lists of numbers."""
    depth, start, key = 0, 0, ""
    values: dict[str, list[float]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line:
            continue
        parsed = _LINE.fullmatch(line)
        opens = None if parsed is None else parsed[1]
        if parsed is None or (opens and opens != ("record", "value", "")[depth]):
            raise LoadError(f"line {number}: '{line}' does not belong here", fix=_FIX)
        if opens:
            if opens == "record":
                start, key, values = number, "", {}
            depth += 1
        elif line == "}":
            depth -= 1
            if depth == 0:
                yield key, Entry(values, f"record '{key}' (line {start})", _FIX)
        elif parsed[2] and depth == 1 and not key:
            key = parsed[3]
        elif parsed[4] in (*_SCALES, *_OFFSETS, *_SIZES) and depth == 2:
            place = Entry({}, f"line {number}, record '{key}'", _FIX)
            values.setdefault(parsed[4], []).append(_number(place, parsed[4], parsed[5]))
        else:
            raise LoadError(f"line {number}: '{line}' does not belong here", fix=_FIX)
        if depth < 0:
            raise LoadError(f"line {number}: unmatched brace", fix=_FIX)
    if depth:
        raise LoadError("the file ends within a record", fix=_FIX)


def _number(place: Entry, field: str, text: str) -> float:
    if field in _SCALES:
        return place.decimal(field, text)
    number = place.whole_decimal(field, text)
    if field in _SIZES and number < 1:
        raise place.error(f"{field} is {text}, which is not a size")
    return number


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    parts = TensorParts(model)
    nodes = {node.name: node for node in model.nodes(*LINEAR_OPS)}
    data = OperatorRows(parts)
    weights: dict[str, QParams] = {}
    seen: set[str] = set()
    for key, record in _records(text):
        if key in seen:
            raise record.error("duplicate record")
        if key not in nodes:
            raise record.error("no layer of the model has that name")
        seen.add(key)
        x, w = (tensor.name for tensor in nodes[key].inputs[:2])
        data.read(_row(record, x, "d", Role.ACTIVATION, parts), read_by(nodes[key], 0))
        row = _row(record, w, "w", Role.WEIGHT, parts)
        if not weights.setdefault(w, row).same_grid(row):
            raise record.error(f"'{w}' has another grid in another record")
    table = data.table()
    table.extend(weights.values())
    return table


def _row(record: Entry, name: str, which: str, role: Role, parts: TensorParts) -> QParams:
    entry = Entry({}, f"{record.where}, tensor '{name}'", _FIX)
    scales, zeros = (record.value.get(f"{key}_{which}", []) for key in ("scale", "offset"))
    if not scales or len(scales) != len(zeros) or (which == "d" and len(scales) != 1):
        raise entry.error(f"{len(scales)} times scale_{which}, {len(zeros)} times offset_{which}")
    return side_rows.row_of_entries(entry, name, 8, True, scales, zeros, role, parts)


def _recognises(content: str) -> bool:
    return re.match(r"\s*record \{\s*key: ", content) is not None


FORMAT = SideFile(
    "ascend-record",
    "Ascend's AMCT record file: grids of input and weight per layer (int8)",
    write,
    read,
    recognises=_recognises,
    detection="text that begins with 'record {' and 'key:'",
    suffix=".txt",
    narrow=False,
)
