"""AIMET and QNN encodings, version 1.0.0: lists of entries that name their tensor.

    {"version": "1.0.0",
     "activation_encodings": [{"name": "<tensor>", "dtype": "INT", "enc_type": "PER_TENSOR",
                               "bw": 8, "is_sym": false, "scale": [s], "offset": [o]}],
     "param_encodings": [{..., "enc_type": "PER_CHANNEL", "is_sym": true, ...}]}

PER_BLOCK adds "block_size". No axis is stored: channels are the output channels of the layer that
the weight belongs to, blocks lie along the axis it sums over, and a block has the same scale at
every position of a kernel. The scales of a 2-D weight are listed channel by channel however it is
stored; those of others in the order of its axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.side_files import aimet as codes
from onnxq.side_files import rows as side_rows
from onnxq.side_files.side_file import SideFile

VERSION = "1.0.0"
_KEYS = ("name", "dtype", "enc_type", "bw", "is_sym", "scale", "offset")
_FIX = f"entries are {{{', '.join(_KEYS)}}}"


def write(table: QParamTable, model: Model) -> str:
    """The JSON text."""
    parts = TensorParts(model)
    rows = codes.writable(table, VERSION, lambda row: _refusal(row, parts))
    document: dict[str, Any] = {"version": VERSION, "producer": codes.PRODUCER}
    for key in codes.GROUPS:
        document[key] = [_entry(r, parts) for r in rows if codes.in_group(r, key)]
    return strict_json.dump(document)


def _refusal(row: QParams, parts: TensorParts) -> str | None:
    if why := codes.offset_refusal(row):
        return why
    if not row.block:
        return side_rows.axis_refusal(row, parts)
    assert row.axis is not None
    try:
        summed = parts.input_axis(row.tensor)
        if row.axis % len(row.scale.shape) != summed:
            return f"its blocks lie along axis {row.axis}, its layer sums over axis {summed}"
        shape = _block_shape(parts, row.tensor, row.block)
    except LoadError as error:
        return error.what
    for values in (row.scale, row.zero_point):
        if not np.array_equal(values, np.broadcast_to(_thin(values, shape), values.shape)):
            return "the scale of a block differs between positions of the kernel"
    return None


def _thin(values: Array, shape: tuple[int, ...]) -> Array:
    """`values` at the first position of every axis that has one position in `shape`."""
    return values[tuple(slice(0, 1) if size == 1 else slice(None) for size in shape)]


def _block_shape(parts: TensorParts, name: str, block: int) -> tuple[int, ...]:
    """Shape of the scales: channels and blocks along their axes, 1 along others."""
    shape = parts.shape(name)
    channel, summed = parts.channel_axis(name), parts.input_axis(name)
    assert shape is not None
    if block < 1 or shape[summed] % block:
        raise LoadError(
            f"tensor '{name}': blocks of {block} do not divide the {shape[summed]} positions of "
            f"axis {summed}",
            fix="choose a block size that divides them",
        )
    blocks = shape[summed] // block
    return tuple(
        size if axis == channel else blocks if axis == summed else 1
        for axis, size in enumerate(shape)
    )


def _entry(row: QParams, parts: TensorParts) -> dict[str, Any]:
    kind = "PER_BLOCK" if row.block else "PER_TENSOR" if row.axis is None else "PER_CHANNEL"
    scale, offset = row.scale, codes.offset_of(row)
    if row.block:
        shape = _block_shape(parts, row.tensor, row.block)
        scale, offset = (_listed(_thin(v, shape), parts, row.tensor) for v in (scale, offset))
    entry: dict[str, Any] = {
        "name": row.tensor,
        "dtype": "INT",
        "enc_type": kind,
        "bw": side_rows.bits_of(row),
        "is_sym": row.qtype.signed,
        "scale": scale.reshape(-1).tolist(),
        "offset": offset.reshape(-1).tolist(),
    }
    return entry | ({"block_size": row.block} if row.block else {})


def _listed(values: Array, parts: TensorParts, name: str) -> Array:
    """Scales of blocks, with the channels first if the weight has two axes."""
    return values.T if values.ndim == 2 and parts.channel_axis(name) == 1 else values


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    parts = TensorParts(model)
    table = QParamTable()
    for role, entry in codes.named_entries(codes.groups(text, VERSION), _FIX):
        if not _is_float(entry):
            table.add(_row(entry, role, parts))
    return table


def _is_float(entry: Entry) -> bool:
    if entry.value.get("dtype") != "FLOAT":
        return False
    entry.only(("name", "dtype", "enc_type", "bw"), ("is_sym",))
    return True


def _row(entry: Entry, role: Role, parts: TensorParts) -> QParams:
    entry.only(_KEYS, ("block_size", "zero_point_shift"))
    entry.choice("dtype", "INT")
    if entry.value["enc_type"] == "LPBQ":
        raise entry.error("LPBQ, blocks whose scales are themselves quantized, is not supported")
    kind = entry.choice("enc_type", "PER_TENSOR", "PER_CHANNEL", "PER_BLOCK")
    name, bits, signed = (
        entry.text("name"),
        entry.integer("bw"),
        entry.choice("is_sym", True, False),
    )
    if any(entry.numbers("zero_point_shift") if "zero_point_shift" in entry.value else ()):
        raise entry.error("a fractional zero point ('zero_point_shift') has no ONNX form")
    low, _ = side_rows.checked_code_range(entry, bits, signed)
    scale, offset = np.array(entry.numbers("scale")), np.array(entry.integers("offset"))
    if scale.size != offset.size:
        raise entry.error(f"{scale.size} scales, but {offset.size} offsets")
    codes.check_offsets(entry, offset.tolist(), bits)
    if signed:
        codes.check_symmetric(entry, "is_sym", offset.tolist())
    if ("block_size" in entry.value) != (kind == "PER_BLOCK"):
        what = "is missing for" if kind == "PER_BLOCK" else "does not go with"
        raise entry.error(f"'block_size' {what} enc_type {kind}")
    if kind == "PER_TENSOR" and scale.size != 1:
        raise entry.error(f"{scale.size} scales, but enc_type PER_TENSOR")
    axis, block = None, 0
    unknown = parts.find(name) is None  # a tensor that is not there has no shape for blocks
    if kind == "PER_CHANNEL" or (kind == "PER_BLOCK" and unknown):
        axis = parts.channel_axis(name)
    elif kind == "PER_BLOCK":
        axis, block = parts.input_axis(name), entry.integer("block_size")
        scale, offset = (_in_blocks(v, entry, name, block, parts) for v in (scale, offset))
    return side_rows.make_row(entry, name, bits, signed, scale, low - offset, role, axis, block)


def _in_blocks(values: Array, entry: Entry, name: str, block: int, parts: TensorParts) -> Array:
    """A list of one value per channel and block, in the shape of such scales in ONNX."""
    shape = _block_shape(parts, name, block)
    if values.size != np.prod(shape):
        raise entry.error(f"{values.size} scales, but the weight has {np.prod(shape)} blocks")
    swapped = len(shape) == 2 and parts.channel_axis(name) == 1
    made = values.reshape(shape[::-1]).T if swapped else values.reshape(shape)
    whole, summed = parts.shape(name), parts.input_axis(name)
    assert whole is not None
    full = tuple(shape[a] if a == summed else size for a, size in enumerate(whole))
    return np.broadcast_to(made, full)


def float_tensors(text: str) -> frozenset[str]:
    """The tensors with an encoding of dtype FLOAT."""
    entries = codes.named_entries(codes.groups(text, VERSION), _FIX)
    return frozenset(entry.text("name") for _, entry in entries if _is_float(entry))


FORMAT = SideFile(
    "aimet-1.0.0",
    "AIMET and QNN encodings 1.0.0: lists of activations and parameters",
    write,
    read,
    recognises=codes.HasVersion((VERSION,)),
    detection='JSON with "version": "1.0.0"',
    versions=(VERSION,),
    narrow=False,
    float_tensors=float_tensors,
)
