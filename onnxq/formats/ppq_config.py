"""PPQ's own configuration: the quantization of every operator's inputs and outputs.

    {"configs": {"<node>": {"<tensor>": {"bit_width": 8, "policy": {"PER_TENSOR": true, ...},
                                         "state": "ACTIVATED", "quant_min": 0, "quant_max": 255,
                                         "hash": 123, "dominator": 123}}},
     "dispatchings": {"<node>": "RKNN_INT8"},
     "values": {"123": {"scale": s, "zero_point": z}}}

"hash" names an entry and "dominator" the entry whose values it shares. An operator quantizes its
inputs and outputs; `onnxq/side_files/operator_rows.py` turns them into rows.

States that are not quantized (FP32, SOI, DEQUANTIZED) give no row. Entries of more than 16 bits
are biases in steps of their layer's sums, which every target derives itself: no row either.
"""

from __future__ import annotations

from typing import Any

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.edit import producer, read_by
from onnxq.errors import near_matches
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.operator_rows import OperatorRows
from onnxq.side_files.side_file import SideFile

_WHAT = "a configuration of PPQ"
_FIX = 'expected {"configs": ..., "dispatchings": ..., "values": ...} as PPQ writes it'
_SECTIONS = ("configs", "dispatchings", "values")
_KEYS = ("bit_width", "policy", "state", "quant_min", "quant_max", "hash", "dominator")
_POLICIES = ("PER_TENSOR", "PER_CHANNEL", "LINEAR", "FLOATING", "SYMMETRICAL", "ASYMMETRICAL")
_MORE_POLICIES = ("POWER_OF_2", "DYNAMIC")
_QUANTIZED = ("ACTIVATED", "BAKED", "OVERLAPPED", "PASSIVE", "PASSIVE_BAKED", "PASSIVE_INIT")
_FLOAT = ("FP32", "SOI", "DEQUANTIZED", "INITIAL", "DEACTIVATED")


def write(table: QParamTable, model: Model) -> str:
    """The JSON text: every producer and consumer of a row has an entry for it."""
    parts = TensorParts(model)
    rows = side_rows.writable(
        table.of(Role.ACTIVATION, Role.WEIGHT),
        "configurations of PPQ",
        lambda row: _refusal(row, parts),
        "use integer types, one scale per tensor or output channel, and named nodes",
    )
    configs: dict[str, dict[str, Any]] = {}
    values: dict[str, dict[str, Any]] = {}
    place = {name: at for at, name in enumerate(parts.tensors)}
    for number, row in enumerate(sorted(rows, key=lambda row: place[row.tensor]), 1):
        values[str(number)] = {"scale": row.scale.tolist(), "zero_point": row.zero_point.tolist()}
        for name in _touching(row.tensor, parts):
            configs.setdefault(name, {})[row.tensor] = _entry(row, number)
    dispatchings = dict.fromkeys(configs, "INT8")
    return strict_json.dump({"configs": configs, "dispatchings": dispatchings, "values": values})


def _refusal(row: QParams, parts: TensorParts) -> str | None:
    if row.qtype.floating or row.qtype.bits > 16:
        return f"codes of type {row.qtype}"
    names = _touching(row.tensor, parts)
    if not names or not all(names):
        return "its producer or a consumer has no name"
    return side_rows.axis_refusal(row, parts)


def _touching(tensor: str, parts: TensorParts) -> list[str]:
    """The names of the producer and the consumers of a tensor."""
    found = parts.find(tensor)
    if found is None:
        return []
    return [node.name for node in (*found.inputs, *(n for n, _ in parts.uses(found)))]


def _entry(row: QParams, number: int) -> dict[str, Any]:
    policy = dict.fromkeys((*_POLICIES, *_MORE_POLICIES), False)
    policy["PER_CHANNEL" if row.axis is not None else "PER_TENSOR"] = True
    policy["SYMMETRICAL" if row.is_symmetric else "ASYMMETRICAL"] = True
    policy["LINEAR"] = True
    return {
        "bit_width": row.qtype.bits,
        "policy": policy,
        "state": "ACTIVATED",
        "quant_min": row.lo,
        "quant_max": row.hi,
        "hash": number,
        "dominator": number,
    }


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = Entry.parse(text, _WHAT, _FIX)
    document.only(_SECTIONS)
    configs, values = (
        Entry.of(document.value[key], f"'{key}'", _FIX) for key in ("configs", "values")
    )
    parts = TensorParts(model)
    found = OperatorRows(parts)
    nodes = {node.name: node for node in model.nodes()}
    for name, tensors in configs.value.items():
        for tensor, value in Entry.of(tensors, f"node '{name}'", _FIX).value.items():
            entry = Entry.of(value, f"node '{name}', tensor '{tensor}'", _FIX)
            row = _row(tensor, entry, values, parts)
            if row is None:
                continue
            known, node = parts.find(tensor), nodes.get(name)
            if known is not None and node is None:
                raise entry.error(f"the model has no such node; {near_matches(name, nodes)}")
            if known is None or producer(known) is node:
                found.make(row)
                continue
            readers = [read_by(n, i) for n, i in parts.uses(known) if n is node]
            if not readers:
                raise entry.error("the node is neither its producer nor a consumer")
            found.read(row, *readers)
    return found.table()


def _row(name: str, entry: Entry, values: Entry, parts: TensorParts) -> QParams | None:
    entry.only(_KEYS)
    if entry.choice("state", *_QUANTIZED, *_FLOAT) in _FLOAT or entry.integer("bit_width") > 16:
        return None
    policy = Entry.of(entry.value["policy"], f"{entry.where}, 'policy'", _FIX)
    policy.only(_POLICIES, _MORE_POLICIES)
    is_so = {key: policy.choice(key, True, False) for key in policy.value}
    if is_so["FLOATING"] or is_so.get("DYNAMIC") or not is_so["LINEAR"]:
        raise entry.error("only static linear grids are supported")
    for one, other in (("PER_TENSOR", "PER_CHANNEL"), ("SYMMETRICAL", "ASYMMETRICAL")):
        if is_so[one] == is_so[other]:
            raise policy.error(f"'{one}' and '{other}' are both {str(is_so[one]).lower()}")
    key = str(entry.integer("dominator"))
    if key not in values.value:
        raise entry.error(f"'values' does not contain its dominator {key}")
    value = Entry.of(values.value[key], f"'values', '{key}'", _FIX)
    value.only(("scale", "zero_point"))
    lo, hi = entry.integer("quant_min"), entry.integer("quant_max")
    bits, signed = entry.integer("bit_width"), lo < 0
    channels = is_so["PER_CHANNEL"]
    scale = value.numbers("scale") if channels else value.number("scale")
    zero_point = value.integers("zero_point") if channels else value.integer("zero_point")
    axis = parts.channel_axis(name) if channels else None
    row = side_rows.make_row(entry, name, bits, signed, scale, zero_point, axis=axis)
    if is_so["SYMMETRICAL"] and row.qtype.signed and row.zero_point.any():
        raise value.error("a zero point that is not 0, but the policy is SYMMETRICAL")
    if not row.qtype.lo <= lo < hi <= row.qtype.hi:
        raise entry.error(f"codes {lo}..{hi} do not fit {bits} bits")
    return side_rows.with_role(row.with_(lo=lo, hi=hi), parts)


def _recognises(text: str) -> bool:
    return set(strict_json.peek(text)) == set(_SECTIONS)


FORMAT = SideFile(
    "ppq",
    "PPQ's own configuration: every operator's inputs and outputs",
    write,
    read,
    recognises=_recognises,
    detection='JSON with "configs", "dispatchings" and "values"',
)
