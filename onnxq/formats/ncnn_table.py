"""ncnn's quantization table: text with the scales of each int8 layer.

    <layer>_param_0 12.5 13.25 ...        weights, one scale per output channel
    <layer> 21.6                          the input of the layer

A scale multiplies: it is 1 / step, that is 127 / absmax. It is written with all digits of the
double 1 / step, so the float32 step is read back exactly. Codes are -127..127, zero point 0.

The table is for layers and not for tensors: other consumers of the same tensor see it unrounded.
Layers are named like their ONNX nodes. ncnn's own converters rename layers, so the table matches
a .param file with the same names, such as the one that onnxq writes. ncnn stops at a blank line.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.edit import read_by
from onnxq.errors import LoadError, near_matches
from onnxq.graph import Model
from onnxq.graph.constants import array, is_constant
from onnxq.operators.op_kind import kind_of
from onnxq.operators.weight_axis import WeightAxis, weight_axis
from onnxq.parsing.decimal_text import number as number_in
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Array, QParams, Reader, Role
from onnxq.quant.scheme import QSpec
from onnxq.side_files import rows as side_rows
from onnxq.side_files.operator_rows import OperatorRows
from onnxq.side_files.side_file import SideFile

WEIGHT = "_param_0"
LONGEST_KEY = 255
_GRID = QSpec(("int8",), symmetric=True, full_range=True, lo=-127)
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
    """The text of the table; a row that belongs to no layer is rejected."""
    held = table.of(Role.ACTIVATION, Role.WEIGHT)
    activations = {row.tensor: row for row in held if row.role is Role.ACTIVATION}
    weights = {row.tensor: row for row in held if row.role is Role.WEIGHT}
    parts = TensorParts(model)
    readers = {name: side_rows.readers_of(row, parts) for name, row in activations.items()}
    inputs: list[str] = []
    kernels: list[str] = []
    rounded: dict[str, set[Reader]] = defaultdict(set)
    refused: dict[str, str] = {}
    for name, node in int8_layers(model).items():
        row, weight = activations.get(node.inputs[0].name), weights.get(node.inputs[1].name)
        reader = read_by(node, 0)
        if row is None or weight is None or reader not in readers[row.tensor]:
            continue
        rounded[row.tensor].add(reader)
        rounded[weight.tensor].add(reader)
        if why := side_rows.off_grid(row, _GRID):
            refused[row.tensor] = why
        elif why := _weight_refusal(node, weight) or _name_refusal(name):
            refused[weight.tensor] = why
        else:
            values, layout = _layout(node)
            steps = np.broadcast_to(weight.scale.reshape(-1), layout.channels(values.shape))
            kernels.append(f"{name}{WEIGHT} {' '.join(map(_scale, steps))}")
            inputs.append(f"{name} {_scale(row.scale)}")
    count = Counter(row.tensor for row in held)
    for row in held:
        if count[row.tensor] > 1:
            refused.setdefault(row.tensor, "it has several quantizers")
        elif not rounded[row.tensor]:
            why = "no int8 layer with a quantized input and a quantized weight reads it"
            refused.setdefault(row.tensor, why)
        elif row.role is Role.ACTIVATION and readers[row.tensor] != rounded[row.tensor]:
            why = "consumers other than int8 layers see it rounded, which the table cannot express"
            refused.setdefault(row.tensor, why)
    side_rows.check_writable(refused, _WHAT, _FIX)
    return "".join(f"{line}\n" for line in (*kernels, *inputs))


def _layout(node: gs.Node) -> tuple[Array, WeightAxis]:
    """The weight of a layer, and where its output channels lie."""
    values = array(node.inputs[1])
    assert values is not None
    layout = weight_axis(node, values.ndim)
    assert layout is not None
    return values, layout


def _weight_refusal(node: gs.Node, row: QParams) -> str | None:
    values, layout = _layout(node)
    if row.block or row.axis not in (None, layout.axis):
        return "its scales do not lie along the output channels"
    if row.qtype.floating or not row.is_symmetric:
        return f"type {row.qtype} with a zero point, and ncnn has int8 with 0"
    if row.qtype.bits > 8 or (row.quantize(values) < -127).any():
        return "codes below -127, which ncnn does not have"
    return None


def _name_refusal(name: str) -> str | None:
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
    inputs = OperatorRows(TensorParts(model))
    weights: list[QParams] = []
    for key, (line, values) in scales.items():
        name = key.removesuffix(WEIGHT)
        if name not in layers:
            raise LoadError(
                f"{line.where} is for layer '{name}', which the model does not have among those "
                "that run in int8",
                fix=near_matches(name, layers),
            )
        node = layers[name]
        if name != key and name not in scales:
            raise line.error(f"layer '{name}' has scales for its weight and none for its input")
        if name == key and f"{name}{WEIGHT}" not in scales:
            raise line.error(f"layer '{name}' has no scales for its weight")
        if name != key:
            weights.append(_weight(node, line, values))
        elif len(values) != 1:
            raise line.error(f"layer '{name}' has {len(values)} scales for its input, not one")
        else:
            row = _row(line, node.inputs[0].name, 1.0 / values[0])
            inputs.read(row, read_by(node, 0))
    return QParamTable([*weights, *inputs.table()])


def _lines(text: str) -> dict[str, tuple[Entry, list[float]]]:
    """The scales by key, each with its place."""
    found: dict[str, tuple[Entry, list[float]]] = {}
    ended = 0
    for number, words in enumerate(map(str.split, text.split("\n")), 1):
        if not words:
            ended = ended or number
            continue
        line = Entry({}, f"line {number} of the ncnn table", _LINE_FIX)
        if ended:
            raise line.error(f"line {ended} is blank, and ncnn stops reading there")
        values = [line.decimal("scale", word) for word in words[1:]]
        if not values or min(values) <= 0:
            raise line.error(f"'{words[0]}' has no scales, or some that are not positive")
        if words[0] in found:
            raise line.error(f"duplicate entry '{words[0]}'")
        found[words[0]] = line, values
    return found


def _weight(node: gs.Node, line: Entry, scales: list[float]) -> QParams:
    values, layout = _layout(node)
    channels, group = layout.channels(values.shape), int(node.attrs.get("group", 1))
    if len(scales) not in (channels, group, 1):
        raise line.error(f"{len(scales)} scales for {channels} output channels")
    steps = np.repeat(1.0 / np.array(scales), channels // len(scales))
    row = _row(line, node.inputs[1].name, steps, layout.axis)
    return row.with_(role=Role.WEIGHT)


def _row(line: Entry, tensor: str, steps: Array | float, axis: int | None = None) -> QParams:
    return side_rows.make_row(line, tensor, 8, True, steps, 0, axis=axis).with_(lo=-127)


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
