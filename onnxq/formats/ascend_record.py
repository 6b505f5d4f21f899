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
weight have a record, and nothing tells about what they make or what other operators read: a
tensor is quantized for those layers alone. channels, height and width are those of the input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_graphsurgeon as gs

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.edit import read_by
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.operators.weight_axis import LINEAR_OPS
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.operator_rows import OperatorRows
from onnxq.side_files.side_file import SideFile

_FIX = "give a record file as AMCT writes it"
_FIELDS = ("scale_d", "offset_d", "scale_w", "offset_w", "channels", "height", "width")
_LINE = re.compile(r"(record|value) \{|\}|(key): \"(.+)\"|(\w+): (\S+)")
_SIZES = ("channels", "height", "width")


def write(table: QParamTable, model: Model) -> str:
    """The text; scales are the shortest decimals that read back as they are."""
    parts = TensorParts(model)
    layers = [n for n in model.nodes(*LINEAR_OPS) if is_constant(n.inputs[1])]
    given = {row.tensor for row in table.of(Role.ACTIVATION, Role.WEIGHT)}
    held = [n for n in layers if n.name and all(t.name in given for t in n.inputs[:2])]
    told = {(id(node), index) for node in held for index in (0, 1)}
    rows = side_rows.writable(
        table.of(Role.ACTIVATION, Role.WEIGHT),
        "records of AMCT",
        lambda row: _refusal(row, parts, told),
        "use int8 for inputs and weights of layers and nothing else, and named nodes",
    )
    by_name = {row.tensor: row for row in rows}
    return "".join(_record(n, *(by_name[t.name] for t in n.inputs[:2])) for n in held)


def _refusal(row: QParams, parts: TensorParts, told: set[tuple[int, int]]) -> str | None:
    if row.qtype.name != "int8" or row.is_narrow:
        return f"codes {row.lo}..{row.hi} of {row.qtype}, not those of int8"
    if row.block:
        return "one scale per block"
    tensor = parts.find(row.tensor)
    uses = [] if tensor is None else parts.uses(tensor)
    leaves = tensor is not None and parts.model.is_output(tensor)
    if leaves or not uses or any((id(node), index) not in told for node, index in uses):
        return "something else reads it than layers whose input and weight are both quantized"
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


@dataclass
class _Record:
    """One record of the file."""

    line: int
    key: str = ""
    values: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Values and their lines, by field."""

    @property
    def where(self) -> str:
        return f"record '{self.key}' (line {self.line})"


def _records(text: str) -> Iterator[_Record]:
    depth, found = 0, _Record(0)
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line:
            continue
        parsed = _LINE.fullmatch(line)
        opens = None if parsed is None else parsed[1]
        if parsed is None or (opens and opens != ("record", "value", "")[depth]):
            raise LoadError(f"line {number}: '{line}' does not belong here", fix=_FIX)
        if opens:
            found = _Record(number) if opens == "record" else found
            depth += 1
        elif line == "}":
            depth -= 1
            if depth == 0:
                yield found
        elif parsed[2] and depth == 1 and not found.key:
            found.key = parsed[3]
        elif parsed[4] in _FIELDS and depth == 2:
            found.values.setdefault(parsed[4], []).append((number, parsed[5]))
        else:
            raise LoadError(f"line {number}: '{line}' does not belong here", fix=_FIX)
        if depth < 0:
            raise LoadError(f"line {number}: one brace too many", fix=_FIX)
    if depth:
        raise LoadError("the file ends within a record", fix=_FIX)


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    parts = TensorParts(model)
    nodes = {node.name: node for node in model.nodes(*LINEAR_OPS)}
    data = OperatorRows(parts)
    weights: dict[str, QParams] = {}
    seen: set[str] = set()
    for record in _records(text):
        if record.key in seen or record.key not in nodes:
            why = (
                "duplicate record" if record.key in seen else "no layer of the model has that name"
            )
            raise LoadError(f"{record.where}: {why}", fix=_FIX)
        seen.add(record.key)
        node = nodes[record.key]
        x, w = (tensor.name for tensor in node.inputs[:2])
        row = _row(record, x, "d", None)
        data.read(row, (read_by(node, 0),))
        many = len(record.values.get("scale_w", ())) > 1
        row = _row(record, w, "w", parts.channel_axis(w) if many else None)
        if w in weights and not weights[w].same_grid(row):
            raise LoadError(f"{record.where}: '{w}' has another grid elsewhere", fix=_FIX)
        weights[w] = row.with_(role=Role.WEIGHT)
    table = data.table()
    table.extend(weights.values())
    return table


def _row(record: _Record, name: str, which: str, axis: int | None) -> QParams:
    entry = Entry({}, f"{record.where}, tensor '{name}'", _FIX)
    scales, zeros = (record.values.get(f"{key}_{which}", []) for key in ("scale", "offset"))
    if not scales or len(scales) != len(zeros) or (which == "d" and len(scales) != 1):
        raise entry.error(f"{len(scales)} times scale_{which}, {len(zeros)} times offset_{which}")
    steps = [_at(entry, at).decimal(f"scale_{which}", text) for at, text in scales]
    codes = [_at(entry, at).whole_decimal(f"offset_{which}", text) for at, text in zeros]
    for key in _SIZES:
        for at, text in record.values.get(key, ()):
            if _at(entry, at).whole_decimal(key, text) < 1:
                raise _at(entry, at).error(f"{key} is {text}, not a size")
    one = axis is None
    return side_rows.make_row(
        entry,
        name,
        8,
        True,
        steps[0] if one else steps,
        codes[0] if one else codes,
        Role.ACTIVATION,
        axis=axis,
    )


def _at(entry: Entry, line: int) -> Entry:
    return Entry({}, f"line {line}, {entry.where}", _FIX)


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
