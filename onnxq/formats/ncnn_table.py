"""ncnn's quantization table: text, the scales of each int8 layer.

    <layer>_param_0 12.5 13.25 ...        weights, one scale per output channel
    <layer> 21.6                          what the layer reads

A scale multiplies: it is 1 / step, that is 127 / absmax. It is written with all digits of the
double 1 / step, so that the float32 step comes back exactly. Codes are -127..127, zero point 0.

The table is for layers and not for tensors: other readers of the same tensor see it unrounded.
Layers are named as ONNX names their nodes. ncnn's own converters rename layers, so the table fits
a .param file of the same names, such as the one that onnxq writes. ncnn stops at a blank line.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import read_by, users
from onnxq.errors import LoadError, near_matches
from onnxq.graph import Model
from onnxq.graph.constants import array, is_constant
from onnxq.operators.op_kind import kind_of
from onnxq.operators.weight_axis import weight_axis
from onnxq.parsing.decimal_text import number as number_in
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import GRAPH_OUTPUT, Array, QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from onnxq.side_files.rows import not_writable
from onnxq.side_files.side_file import SideFile

WEIGHT = "_param_0"
LOWEST, HIGHEST = -127, 127
LONGEST_KEY = 255
_WHAT = "an ncnn quantization table"
_LINE_FIX = "a line is '<layer>_param_0 <scale> ...' or '<layer> <scale>', positive numbers"
_FIX = "quantize for ncnn: int8 on -127..127 with zero point 0, at the inputs of its int8 layers"


def int8_layers(model: Model) -> dict[str, gs.Node]:
    """The layers that ncnn runs in int8, by name: convolutions and products with a constant."""
    found: dict[str, gs.Node] = {}
    for node in model.nodes("Conv", "Gemm", "MatMul"):
        if kind_of(node) in ("Conv", "Linear") and is_constant(node.inputs[1]):
            found.setdefault(node.name or node.outputs[0].name, node)
    return found


def write(table: QParamTable, model: Model) -> str:
    """The text of the table; a row that no layer holds is refused."""
    activations = {row.tensor: row for row in table.of(Role.ACTIVATION)}
    weights = {row.tensor: row for row in table.of(Role.WEIGHT)}
    refused: dict[str, str] = {}
    first: list[str] = []
    second: list[str] = []
    held: set[str] = set()
    told: dict[str, set[Reader]] = {}
    for name, node in int8_layers(model).items():
        row, weight = (
            rows.get(tensor.name)
            for rows, tensor in zip((activations, weights), node.inputs[:2], strict=True)
        )
        if row is not None and not _reads(row, node):
            row = None
        if row is None or weight is None:
            continue
        held |= {row.tensor, weight.tensor}
        told.setdefault(row.tensor, set()).add(read_by(node, 0))
        if told[row.tensor] == _readers(row, node.inputs[0], model):
            refused.pop(row.tensor, None)
        else:
            refused[row.tensor] = "others than int8 layers read it rounded, which no line can say"
        steps, why = _steps(node, weight)
        why = why or _grid(row) or _key(name)
        if why:
            refused[row.tensor if _grid(row) else weight.tensor] = why
            continue
        first.append(f"{name}{WEIGHT} {' '.join(map(_scale, steps))}")
        second.append(f"{name} {_scale(row.scale)}")
    for tensor in (*activations, *weights):
        if tensor not in held:
            refused[tensor] = "no int8 layer with a quantized input and a quantized weight reads it"
    if len(activations) + len(weights) != len(table.of(Role.ACTIVATION, Role.WEIGHT)):
        several = [r.tensor for r in table.of(Role.ACTIVATION, Role.WEIGHT)]
        for tensor in {t for t in several if several.count(t) > 1}:
            refused[tensor] = "it has several quantizers"
    if refused:
        raise not_writable(refused, _WHAT, _FIX)
    return "".join(f"{line}\n" for line in (*first, *second))


def _readers(row: QParams, tensor: gs.Tensor, model: Model) -> set[Reader]:
    """Who sees the tensor rounded."""
    if row.readers is not None:
        return set(row.readers)
    found = {read_by(node, index) for node, index in users(tensor)}
    return found | ({GRAPH_OUTPUT} if model.is_output(tensor) else set())


def _reads(row: QParams, node: gs.Node) -> bool:
    return row.readers is None or read_by(node, 0) in row.readers


def _grid(row: QParams) -> str | None:
    if row.axis is not None:
        return "one scale per channel or block"
    if not row.qtype.signed or row.qtype.floating or row.zero_point.any():
        return f"type {row.qtype} with zero point {row.zero_point}, and ncnn has int8 with 0"
    if (row.lo, row.hi) != (LOWEST, HIGHEST):
        return f"codes {row.lo}..{row.hi}, and ncnn has {LOWEST}..{HIGHEST}"
    return None


def _steps(node: gs.Node, row: QParams) -> tuple[Array, str | None]:
    """One step per output channel, or why there is none."""
    values = array(node.inputs[1])
    assert values is not None
    layout = weight_axis(node, values.ndim)
    assert layout is not None
    if row.block or row.axis not in (None, layout.axis):
        return row.scale, "its scales do not lie along the output channels"
    if not row.qtype.signed or row.qtype.floating or row.zero_point.any():
        return row.scale, f"type {row.qtype} with a zero point, and ncnn has int8 with 0"
    if row.qtype.bits > 8 or (row.quantize(values) < LOWEST).any():
        return row.scale, f"codes below {LOWEST}, which ncnn does not have"
    return np.broadcast_to(row.scale.reshape(-1), (layout.channels(values.shape),)), None


def _key(name: str) -> str | None:
    if "_param_" in name or name.split() != [name]:
        return f"its layer '{name}' has spaces or '_param_' in its name"
    if len(f"{name}{WEIGHT}".encode()) > LONGEST_KEY:
        return f"the name of its layer has more than {LONGEST_KEY - len(WEIGHT)} bytes"
    return None


def _scale(step: Array) -> str:
    return repr(1.0 / float(step))


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    scales = _lines(text)
    layers = int8_layers(model)
    found = QParamTable()
    inputs: dict[tuple[str, float], list[gs.Node]] = {}
    for key, (number, values) in scales.items():
        name = key.removesuffix(WEIGHT)
        node = layers.get(name)
        if node is None:
            raise LoadError(
                f"line {number} of the table is for layer '{name}', which the model does not have "
                "among those that run in int8",
                fix=near_matches(name, layers),
            )
        if name == key:
            if len(values) != 1:
                raise _wrong(number, f"layer '{name}' reads with {len(values)} scales, not one")
            inputs.setdefault((node.inputs[0].name, values[0]), []).append(node)
            continue
        if name not in scales:
            raise _wrong(number, f"layer '{name}' has scales for its weight and none for its input")
        found.add(_weight(node, number, values))
    for (tensor, scale), nodes in inputs.items():
        uses = users(nodes[0].inputs[0])
        whole = {(id(n), i) for n, i in uses} == {(id(n), 0) for n in nodes}
        readers = None if whole else tuple(read_by(n, 0) for n in nodes)
        found.add(_row(tensor, np.array(1.0 / scale), readers=readers))
    missing = [k for k in scales if not k.endswith(WEIGHT) and f"{k}{WEIGHT}" not in scales]
    if missing:
        raise _wrong(scales[missing[0]][0], f"layer '{missing[0]}' has no scales for its weight")
    return found


def _lines(text: str) -> dict[str, tuple[int, list[float]]]:
    found: dict[str, tuple[int, list[float]]] = {}
    ended = 0
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words:
            ended = ended or number
            continue
        if ended:
            raise _wrong(number, f"line {ended} is blank, and ncnn stops reading there")
        entry = Entry({}, f"line {number} of the ncnn table", _LINE_FIX)
        values = [entry.decimal("scale", word) for word in words[1:]]
        if not values or min(values) <= 0:
            raise _wrong(number, f"'{words[0]}' has no scales, or some that are not positive")
        if words[0] in found:
            raise _wrong(number, f"duplicate entry '{words[0]}'")
        found[words[0]] = number, values
    return found


def _weight(node: gs.Node, number: int, scales: list[float]) -> QParams:
    values = array(node.inputs[1])
    assert values is not None
    layout = weight_axis(node, values.ndim)
    assert layout is not None
    channels, group = layout.channels(values.shape), int(node.attrs.get("group", 1))
    if len(scales) not in (channels, group, 1):
        raise _wrong(number, f"{len(scales)} scales for {channels} output channels")
    steps = np.repeat(1.0 / np.array(scales), channels // len(scales))
    return _row(node.inputs[1].name, steps, axis=layout.axis, role=Role.WEIGHT)


def _row(tensor: str, steps: Array, **more: object) -> QParams:
    zero = np.zeros((), np.int64)
    made = QParams(tensor, qtype("int8"), steps, zero, lo=LOWEST, hi=HIGHEST, **more)  # type: ignore[arg-type]
    return made


def _wrong(number: int, why: str) -> LoadError:
    return LoadError(f"line {number} of the ncnn table: {why}", fix=_LINE_FIX)


def recognises(content: str) -> bool:
    """Whether every line has a key and more, and some key is for weights."""
    lines = [line.split() for line in content.split("\n") if line.strip()]
    return all(len(words) > 1 for words in lines) and any(
        words[0].endswith(WEIGHT) and number_in(words[1]) is not None for words in lines
    )


FORMAT = SideFile(
    "ncnn-table",
    "ncnn's quantization table: scales of int8 layers, for ncnn2int8",
    write,
    read,
    recognises=recognises,
    detection="lines of a name and positive numbers, some names ending in _param_0",
    suffix=".table",
    readers=True,
)
