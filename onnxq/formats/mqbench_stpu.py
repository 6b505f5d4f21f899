"""Ranges for STPU as MQBench's loaders expect them: one flat object of tensors and layers.

    {"<tensor>": {"min": -127 s, "max": 127 s},
     "<output of a layer>": {"min": ..., "max": ..., "emin": 119},
     "<node>_weights": {"min": -127 s, "max": 127 s},
     "<node>_bias": {"alpha": input scale * weight scale, "zero_point": 0}}

All are int8 on -127..127 with zero point 0 and one scale per tensor. The inputs of Relu, Concat and
Clip from 0 up get the range of the result, if they have none and no other consumer
(`onnxq.analysis.implied_ranges`). "emin" is the smallest exponent that the sums of a layer keep.
With E(v) the exponent field of the float32 v, n the products per sum, and x, w, y the largest
input, weight and output

    Conv      E(max(sqrt(n) x w, y)) - 10
    Gemm      128
    Resize    E(y) - 20

It follows from the rest, so it is written and checked to be an integer, but not kept. The ranges
are the trained ones; the stpu backend lists where MQBench differs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.implied_ranges import with_implied, without_implied
from onnxq.analysis.tensor_roles import TensorParts
from onnxq.edit import describe
from onnxq.errors import SaveError
from onnxq.graph import Model
from onnxq.graph.constants import array, is_constant
from onnxq.operators.weight_axis import BIAS_INPUT, LINEAR_OPS
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.scheme import QSpec
from onnxq.side_files import rows as side_rows
from onnxq.side_files.side_file import SideFile

_WHAT = "an STPU range file"
_FIX = 'expected {"<tensor>": {"min", "max"}, "<node>_weights": {...}, "<node>_bias": {...}}'
_FUNCTIONS = ("Relu", "Clip", "Concat")
_TOP = 127
_GRID = QSpec(("int8",), symmetric=True, full_range=True, lo=-_TOP)
_WEIGHTS, _BIAS = "_weights", "_bias"
_KINDS = ({"min", "max"}, {"min", "max", "emin"}, {"alpha", "zero_point"})


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; ranges are exact, since 127 * float32 fits a double."""
    layers = _layers(model)
    weights = {node.inputs[1].name for node in layers.values()}
    rows = side_rows.writable(
        table.of(Role.ACTIVATION, Role.WEIGHT),
        "STPU ranges",
        lambda row: _refusal(row, weights),
        "use int8 on -127..127 with zero point 0 and one scale per tensor",
    )
    held = with_implied(QParamTable(rows), model, _FUNCTIONS)
    scale = {row.tensor: float(row.scale) for row in held}
    document: dict[str, dict[str, Any]] = {
        row.tensor: _ends(scale[row.tensor]) for row in held if row.role is Role.ACTIVATION
    }
    for node in model.nodes("Conv", "Gemm", "Resize", "Upsample"):
        made = node.outputs[0].name
        if made in document:
            document[made]["emin"] = _least_exponent(node, scale)
    for name, node in layers.items():
        x, w = (scale.get(t.name) for t in node.inputs[:2])
        if w is None:
            continue
        _add(document, f"{name}{_WEIGHTS}", _ends(w))
        if x is not None and _has_bias(node):
            _add(document, f"{name}{_BIAS}", {"alpha": x * w, "zero_point": 0})
    return strict_json.dump(document)


def _add(document: dict[str, dict[str, Any]], key: str, entry: dict[str, Any]) -> None:
    if key in document:
        raise SaveError(f"'{key}' names both a tensor and a layer", fix="rename the node")
    document[key] = entry


def _layers(model: Model) -> dict[str, gs.Node]:
    """The linear layers with a constant weight, by name; names must be unique."""
    found: dict[str, gs.Node] = {}
    for node in model.nodes(*LINEAR_OPS):
        if len(node.inputs) < 2 or not is_constant(node.inputs[1]):
            continue
        if not node.name or node.name in found:
            raise SaveError(
                f"{describe(node)} has no name of its own, and weights are stored under it",
                fix="name the nodes of the model, each differently",
            )
        found[node.name] = node
    return found


def _has_bias(node: gs.Node) -> bool:
    index = BIAS_INPUT.get(node.op)
    return index is not None and len(node.inputs) > index and bool(node.inputs[index].name)


def _refusal(row: QParams, weights: set[str]) -> str | None:
    if row.role is Role.WEIGHT and row.tensor not in weights:
        return "no layer has it as its weight"
    return side_rows.off_grid(row, _GRID)


def _ends(scale: float) -> dict[str, Any]:
    return {"min": -_TOP * scale, "max": _TOP * scale}


def _least_exponent(node: gs.Node, scale: dict[str, float]) -> int:
    reach = _TOP * scale[node.outputs[0].name]
    if node.op == "Gemm":
        return 128
    if node.op != "Conv":
        return _exponent(reach) - 20
    weight = array(node.inputs[1])
    x, w = (_TOP * scale.get(t.name, 0.0) for t in node.inputs[:2])
    products = 0 if weight is None else math.prod(weight.shape[1:])
    return _exponent(max(math.sqrt(products) * x * w, reach)) - 10


def _exponent(value: float) -> int:
    """The exponent field of a float32."""
    return int(np.float32(value).view(np.uint32) >> 23)


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = Entry.parse(text, _WHAT, _FIX)
    parts = TensorParts(model)
    nodes = {f"{n.name}{_WEIGHTS}": n for n in model.nodes(*LINEAR_OPS) if len(n.inputs) > 1}
    biases = {f"{n.name}{_BIAS}": n for n in nodes.values()}
    rows: dict[str, QParams] = {}
    sums: list[tuple[Entry, gs.Node]] = []
    for key, value in document.value.items():
        entry = Entry.of(value, f"'{key}'", _FIX)
        if "alpha" in value:
            entry.only(("alpha", "zero_point"))
            if key not in biases:
                raise entry.error("no layer has that name")
            sums.append((entry, biases[key]))
            continue
        entry.only(("min", "max"), ("emin",))
        if "emin" in value:
            entry.integer("emin")
        tensor = key
        if parts.find(key) is None and key in nodes:
            tensor = nodes[key].inputs[1].name
        row = _row(tensor, entry)
        if tensor in rows and not rows[tensor].same_grid(row):
            raise entry.error(f"weight '{tensor}' has another range in another layer")
        rows[tensor] = side_rows.with_role(row, parts)
    for entry, node in sums:
        _check_sum(entry, node, rows)
    return without_implied(QParamTable(list(rows.values())), model, _FUNCTIONS)


def _row(name: str, entry: Entry) -> QParams:
    low, high = entry.number("min"), entry.number("max")
    if not high > 0 or abs(low + high) > 1e-6 * high:
        raise entry.error(f"{low:.9g}..{high:.9g} is not a range around 0")
    return side_rows.make_row(entry, name, 8, True, high / _TOP, 0).with_(lo=-_TOP)


def _check_sum(entry: Entry, node: gs.Node, rows: dict[str, QParams]) -> None:
    """Reject a bias step that is not the one of the sums it is added to."""
    if entry.integer("zero_point"):
        raise entry.error("'zero_point' is not 0")
    x, w = (rows.get(t.name) for t in node.inputs[:2])
    if x is None or w is None:
        raise entry.error("input or weight of the layer has no range")
    want = float(x.scale) * float(w.scale)
    if abs(entry.number("alpha") - want) > 1e-5 * want:
        raise entry.error(f"'alpha' is {entry.number('alpha'):.9g}, not {want:.9g}")


def _recognises(content: str) -> bool:
    entries = strict_json.peek(content).values()
    return bool(entries) and all(isinstance(e, dict) and set(e) in _KINDS for e in entries)


FORMAT = SideFile(
    "mqbench-stpu",
    "STPU in MQBench's form: ranges by tensor and layer, steps of biases",
    write,
    read,
    recognises=_recognises,
    detection="JSON of entries with min and max, or alpha and zero_point",
)
