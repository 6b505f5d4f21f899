"""MNN's compression parameters: a protobuf for its converter, next to a float model.

    Pipeline { version "0.0.0", algo { type QUANTIZE, quant_params { round_mode, layer* } } }
    layer    { input*, weight*, output*, method QAT, op_name }
    input    { name, bits, scales, zero_point, clamp_min, clamp_max }      output: the same
    weight   { name, bits, scales, clamp_min, clamp_max }                  zero point 0

A layer is an operator with a quantized weight, together with the activation function after it;
tensors that no such layer reads or writes get a layer of their own without a weight. A layer with a
weight, but without a scale for its input, has no output: otherwise MNN's converter crashes. A scale
is a step. Codes are signed. MNN rounds halves away from zero (round_mode 1), the graph to even:
that differs for exact halves only.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.canonical.fake_quantize import narrowest
from onnxq.edit import producer
from onnxq.errors import LoadError, QParamsError, near_matches
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.operators.op_kind import weight_of
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.side_files.rows import axis_refusal, writable
from onnxq.side_files.side_file import SideFile

VERSION = "0.0.0"
_AWAY_FROM_ZERO, _QUANTIZE, _QAT = 1, 0, 0
_FIX = "give the file that MNN's training tools or onnxq wrote for this model, complete"
_WHAT = "MNN compression parameters"
_REFUSED = "quantize for mnn: signed codes, one scale per tensor, weights per channel"

_FIELD = descriptor_pb2.FieldDescriptorProto
_ONE, _NEEDED, _MANY = _FIELD.LABEL_OPTIONAL, _FIELD.LABEL_REQUIRED, _FIELD.LABEL_REPEATED
_TENSOR = (
    ("name", 1, _FIELD.TYPE_STRING, _NEEDED),
    ("bits", 2, _FIELD.TYPE_INT32, _ONE),
    ("scales", 3, _FIELD.TYPE_FLOAT, _MANY),
)
_MESSAGES: dict[str, tuple[tuple[str, int, Any, Any], ...]] = {
    "Activation": (
        *_TENSOR,
        ("zero_point", 4, _FIELD.TYPE_INT32, _ONE),
        ("clamp_min", 5, _FIELD.TYPE_INT32, _ONE),
        ("clamp_max", 6, _FIELD.TYPE_INT32, _ONE),
    ),
    "Weight": (
        *_TENSOR,
        ("clamp_min", 4, _FIELD.TYPE_INT32, _ONE),
        ("clamp_max", 5, _FIELD.TYPE_INT32, _ONE),
        ("asymmetric", 6, _FIELD.TYPE_BOOL, _ONE),
    ),
    "Layer": (
        ("input", 1, "Activation", _MANY),
        ("weight", 2, "Weight", _MANY),
        ("output", 3, "Activation", _MANY),
        ("method", 4, _FIELD.TYPE_INT32, _ONE),
        ("op_name", 6, _FIELD.TYPE_STRING, _ONE),
    ),
    "Quantization": (
        ("round_mode", 1, _FIELD.TYPE_INT32, _ONE),
        ("layer", 4, "Layer", _MANY),
    ),
    "Algorithm": (
        ("type", 1, _FIELD.TYPE_INT32, _ONE),
        ("quant_params", 2, "Quantization", _ONE),
    ),
    "Pipeline": (("version", 1, _FIELD.TYPE_STRING, _NEEDED), ("algo", 2, "Algorithm", _MANY)),
}
"""The fields onnxq knows: name, number, type, how often. Enumerations are int32 on the wire."""
_DEFAULTS = {"bits": "8", "clamp_min": "-128", "clamp_max": "127", "round_mode": "1"}


@cache
def _pipeline() -> type[Message]:
    """The class of the outermost message."""
    package = "onnxq.mnn"
    file = descriptor_pb2.FileDescriptorProto(
        name="onnxq_mnn_compression.proto", package=package, syntax="proto2"
    )
    for message, fields in _MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, number, kind, label in fields:
            field = made.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"
                continue
            field.type = kind
            if name in _DEFAULTS:
                field.default_value = _DEFAULTS[name]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Pipeline"))


# -- out ------------------------------------------------------------------------------------------


def write(table: QParamTable, model: Model) -> bytes:
    """The bytes of the file."""
    held = table.of(Role.ACTIVATION, Role.WEIGHT)
    parts = TensorParts(model)
    kept = writable(held, _WHAT, lambda row: _refusal(row, parts), _REFUSED)
    rows = {row.tensor: row for row in kept}
    message: Any = _pipeline()(version=VERSION)
    quantization = message.algo.add(type=_QUANTIZE).quant_params
    quantization.round_mode = _AWAY_FROM_ZERO
    written: set[str] = set()

    def layer(
        node: gs.Node, inputs: list[gs.Tensor], weights: list[gs.Tensor], outputs: list[gs.Tensor]
    ) -> None:
        made = quantization.layer.add(method=_QAT, op_name=node.name or node.outputs[0].name)
        fields = ((inputs, made.input), (weights, made.weight), (outputs, made.output))
        for tensors, field in fields:
            for row in (rows[t.name] for t in tensors if t.name in rows):
                _fill(field.add(), row)
                written.add(row.tensor)

    nodes = model.nodes()
    for node in nodes:
        weight = weight_of(node)
        if weight is not None and weight.name in rows:
            others = [t for t in node.inputs if t is not weight]
            reads = any(t.name in rows for t in others)
            outputs = [_settled(node.outputs[0], rows, model)] if reads else []
            layer(node, others, [weight], outputs)
    for node in nodes:
        if any(t.name in rows and t.name not in written for t in (*node.inputs, *node.outputs)):
            constant = [t for t in node.inputs if is_constant(t)]
            moving = [t for t in node.inputs if not is_constant(t)]
            layer(node, moving, constant, list(node.outputs))
    return bytes(message.SerializeToString(deterministic=True))


def _settled(tensor: gs.Tensor, rows: dict[str, QParams], model: Model) -> gs.Tensor:
    """The output of a layer: after its bias and activation function, if it is quantized there."""
    while tensor.name not in rows and len(tensor.outputs) == 1 and not model.is_output(tensor):
        reader = tensor.outputs[0]
        adds_bias = reader.op == "Add" and any(is_constant(t) for t in reader.inputs)
        if reader.op not in ("Relu", "Clip") and not adds_bias:
            break
        tensor = reader.outputs[0]
    return tensor


def _refusal(row: QParams, parts: TensorParts) -> str | None:
    if row.qtype.floating or not row.qtype.signed or row.qtype.bits > 8:
        return f"type {row.qtype}, and MNN has signed codes of at most 8 bits"
    if row.role is Role.WEIGHT and row.zero_point.any():
        return "a weight with a zero point"
    return axis_refusal(row, parts)


def _fill(entry: Any, row: QParams) -> None:
    assert row.lo is not None and row.hi is not None
    # Signed codes: 0..15 take 5 bits.
    entry.name, entry.bits = row.tensor, 1 + max(1, row.hi, -1 - row.lo).bit_length()
    entry.scales.extend(row.scale.reshape(-1).tolist())
    entry.clamp_min, entry.clamp_max = row.lo, row.hi
    if row.role is not Role.WEIGHT:
        entry.zero_point = int(row.zero_point)


# -- in -------------------------------------------------------------------------------------------


def _parsed(data: bytes) -> Any:
    message: Any = _pipeline()()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise LoadError(f"not {_WHAT}: {error}", fix=_FIX) from error
    return message


def read(data: bytes, model: Model) -> QParamTable:
    """Inverse of `write`."""
    message = _parsed(data)
    if message.version != VERSION:
        raise LoadError(
            f"{_WHAT} of version '{message.version}' are not read",
            fix=f"give a file of version {VERSION}",
        )
    parts = TensorParts(model)
    found: dict[str, QParams] = {}
    for number, algorithm in enumerate(message.algo):
        if algorithm.type != _QUANTIZE or not algorithm.HasField("quant_params"):
            raise LoadError(
                f"algo {number} does not quantize", fix="give a file that only quantizes"
            )
        for part in (algorithm, algorithm.quant_params):
            _check_known(part, f"algo {number}")
        for index, layer in enumerate(algorithm.quant_params.layer):
            where = f"layer {index} ('{layer.op_name}')"
            for part in (layer, *layer.input, *layer.output, *layer.weight):
                _check_known(part, where)
            rows = [_row(e, parts, Role.ACTIVATION, where) for e in (*layer.input, *layer.output)]
            rows += [_row(entry, parts, Role.WEIGHT, where) for entry in layer.weight]
            for row in rows:
                if not found.setdefault(row.tensor, row).same_grid(row):
                    raise LoadError(f"{where} gives tensor '{row.tensor}' a second grid", fix=_FIX)
    return QParamTable(list(found.values()))


def _check_known(message: Any, where: str) -> None:
    """Reject fields that onnxq does not know: they may change the meaning of the others."""
    unknown: Any = UnknownFieldSet(message)
    for field in unknown:
        raise LoadError(f"{where}: field {field.field_number} is not read", fix=_FIX)


def _row(entry: Any, parts: TensorParts, role: Role, where: str) -> QParams:
    name = entry.name
    tensor = parts.find(name)
    if tensor is None:
        raise LoadError(
            f"{where}: the model has no tensor '{name}'", fix=near_matches(name, parts.tensors)
        )
    if role is Role.WEIGHT and not is_constant(tensor) and producer(tensor) is None:
        raise LoadError(f"{where}: weight '{name}' is an input of the model", fix=_FIX)
    if getattr(entry, "asymmetric", False):
        raise LoadError(f"{where}: weight '{name}' is asymmetric, which is not read", fix=_FIX)
    lo, hi = entry.clamp_min, entry.clamp_max
    if not 2 <= entry.bits <= 8 or not -(1 << entry.bits - 1) <= lo < hi < 1 << entry.bits - 1:
        raise LoadError(f"{where}: '{name}' has codes {lo}..{hi} of {entry.bits} bits", fix=_FIX)
    scales = np.array(entry.scales, np.float32)
    axis = parts.channel_axis(name) if role is Role.WEIGHT and scales.size > 1 else None
    zero = np.array(getattr(entry, "zero_point", 0), np.int64)
    kind = narrowest(qtype("int8"), lo, hi)
    try:
        row = QParams(name, kind, scales, zero, axis=axis, lo=lo, hi=hi, role=role)
        row.check_shape(parts.shape(name))
    except QParamsError as error:
        raise LoadError(f"{where}: {error.what}", fix=_FIX) from error
    return row


def recognises(content: bytes) -> bool:
    """Whether the bytes are such a message, with at least one layer."""
    try:
        message = _parsed(content)
    except LoadError:
        return False
    return message.version == VERSION and any(a.quant_params.layer for a in message.algo)


FORMAT = SideFile(
    "mnn-compression",
    "MNN's compression parameters, for its converter",
    write,
    read,
    recognises=recognises,
    detection="a protobuf whose first field is the version 0.0.0, with quantized layers",
    binary=True,
    suffix=".bin",
)
