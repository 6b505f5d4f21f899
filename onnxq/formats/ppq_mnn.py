"""Steps for MNN as PPQ writes them: inputs and outputs of convolutions, and outputs of Add.

    {"shape": {"channels": 3, "height": 16, "width": 16},
     "<result> input_tensor_0": <step>,         the input of the convolution that computes <result>
     "<result> output_tensor_0": <step>}        the output of that convolution, or of an Add

All are int8 on -127..127 with zero point 0, one step per tensor. "shape" is that of the network's
last input. Weights have no entry: PPQ stores them rounded, on -127..127 with one step per output
channel, which follows from the largest magnitude of a channel (`--weights max`). Inputs and outputs
of other operators are quantized only if one of these layers produces or consumes them. PPQ also
rounds the operands of an Add; the file specifies that only for those that come from a layer.

For an Add, PPQ stores the step of its second operand instead of its result's. If a convolution
consumes that sum, the convolution's entry is right. Such a file is read unchanged: the sum is
rounded and clipped with the step of the file, and then with the convolution's.

A layer's step holds after its Relu as well: relu(Q(x)) = Q(relu(x)) if zero is on the grid. So it
is read, and looked up for writing, after a Relu that is the only consumer of the layer. A Clip may
end off the grid; `onnxq/analysis/implied_ranges.py` has the rules for it.
"""

from __future__ import annotations

import re
from typing import Any

import onnx_graphsurgeon as gs

from onnxq.analysis.implied_ranges import with_implied, without_implied
from onnxq.analysis.tensor_roles import TensorParts
from onnxq.edit import read_by, users
from onnxq.errors import LoadError, listed
from onnxq.graph import Model, domain_of
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.scheme import QSpec
from onnxq.side_files import rows as side_rows
from onnxq.side_files.operator_rows import OperatorRows
from onnxq.side_files.side_file import SideFile

_WHAT = "a file of PPQ for MNN"
_SIZES = ("channels", "height", "width")
_KEY = re.compile(r"(.+) (input|output)_tensor_0", re.DOTALL)
_INPUT, _OUTPUT = " input_tensor_0", " output_tensor_0"
_FIX = (
    f'expected {{"shape": ..., "<result>{_INPUT}": <step>, "<result>{_OUTPUT}": <step>}} '
    "for Conv and Add, and the model that PPQ wrote beside it"
)
_GRID = QSpec(("int8",), symmetric=True, full_range=True, lo=-127)
_LAYERS = ("Conv", "Add")
_CUT = ("Clip",)


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; steps are exact."""
    parts = TensorParts(model)
    layers = _layers(model)
    convolutions = {read_by(node, 0) for node in layers.values() if node.op == "Conv"}
    rows = with_implied(QParamTable(table.of(Role.ACTIVATION)), model, _CUT, _LAYERS).rows
    given = {row.tensor for row in rows}
    after = {_after_relu(node, model): name for name, node in layers.items() if name not in given}
    makers = after | {name: name for name in layers}
    written: dict[str | Reader, QParams] = {}
    refused: dict[str, str] = {}
    for row in rows:
        why = side_rows.off_grid(row, _GRID)
        places: set[str | Reader] = set()
        if row.readers is None and row.tensor in makers:
            places = {makers[row.tensor]}
        elif not why:
            readers = side_rows.readers_of(row, parts)
            places = {*readers}
            if not readers or not readers <= convolutions:
                why = "its producer is neither Conv nor Add, and not all its consumers are Conv"
        if not why and places & written.keys():
            why = "it has several quantizers"
        if why:
            refused[row.tensor] = why
        written.update(dict.fromkeys(places, row))
    fix = "quantize inputs and outputs of Conv and outputs of Add, as int8 on -127..127"
    side_rows.check_writable(refused, "steps of PPQ for MNN", fix)
    document: dict[str, Any] = {"shape": _shape(model)}
    for name, node in layers.items():
        x = node.inputs[0].name
        reads = written.get(read_by(node, 0)) or written.get(makers.get(x, x))
        if node.op == "Conv" and reads is not None:
            document[name + _INPUT] = float(reads.scale)
        if name in written:
            document[name + _OUTPUT] = float(written[name].scale)
    return strict_json.dump(document)


def _layers(model: Model) -> dict[str, gs.Node]:
    """The operators that may have entries, by their output."""
    return {n.outputs[0].name: n for n in model.nodes(*_LAYERS) if not domain_of(n)}


def _after_relu(layer: gs.Node, model: Model) -> str:
    """The output of a layer, or of a Relu that is its only consumer."""
    made = layer.outputs[0]
    readers = users(made)
    if len(readers) == 1 and not model.is_output(made):
        (reader, _) = readers[0]
        if reader.op == "Relu" and not domain_of(reader):
            return str(reader.outputs[0].name)
    return str(made.name)


def _shape(model: Model) -> dict[str, int]:
    """The sizes of the last input that has known ones; empty if there is none."""
    for tensor in reversed(model.graph.inputs):
        sizes = (tensor.shape or ())[1:]
        if len(sizes) == 3 and all(isinstance(size, int) for size in sizes):
            return dict(zip(_SIZES, sizes, strict=True))
    return {}


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = Entry.parse(text, _WHAT, _FIX)
    if "shape" not in document.value:
        raise document.error("key 'shape' is missing")
    _check_shape(Entry.of(document.value["shape"], "'shape'", _FIX))
    layers = _layers(model)
    found = OperatorRows(TensorParts(model))
    unknown: list[str] = []
    for key in document.value:
        if key == "shape":
            continue
        parsed = _KEY.fullmatch(key)
        if parsed is None:
            raise document.error(f"unknown key '{key}'")
        name, side = parsed.groups()
        node = layers.get(name)
        row = _row(name, key, document)
        if node is None or (side == "input" and node.op != "Conv"):
            unknown.append(f"'{key}'")
        elif side == "input":
            found.read(row.with_(tensor=node.inputs[0].name), read_by(node, 0))
        else:
            found.make(row.with_(tensor=_after_relu(node, model)))
    if unknown:
        what = f"{len(unknown)} keys do not name the output of a Conv or Add of the model:"
        raise LoadError(f"{what}{listed(unknown)}", fix=_FIX)
    return without_implied(found.table(), model, _CUT, _LAYERS)


def _check_shape(shape: Entry) -> None:
    shape.only(_SIZES if shape.value else ())
    for key, size in shape.value.items():
        # PPQ copies the name of a dynamic size.
        if not isinstance(size, str) and shape.integer(key) < 1:
            raise shape.error(f"'{key}' is {size}, not a size")


def _row(name: str, key: str, document: Entry) -> QParams:
    entry = Entry({}, f"key '{key}'", _FIX)
    step = document.number(key)
    return side_rows.make_row(entry, name, 8, True, step, 0).with_(lo=-127)


def _recognises(content: str) -> bool:
    document = strict_json.peek(content)
    if not isinstance(document.get("shape"), dict):
        return False
    sized = not document["shape"] or set(document["shape"]) == set(_SIZES)
    return sized and all(_KEY.fullmatch(key) for key in document if key != "shape")


FORMAT = SideFile(
    "ppq-mnn",
    "PPQ's scales for MNN: inputs and outputs of Conv, outputs of Add (int8)",
    write,
    read,
    recognises=_recognises,
    detection='JSON with "shape" and keys that end in "input_tensor_0" or "output_tensor_0"',
    weights=False,
    readers=True,
)
