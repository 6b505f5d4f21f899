"""The bytes of tensors in a file next to the model.

A file that was replaced is detected by identity, size and time. Bytes are read in pieces or
memory-mapped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from onnx import TensorProto, helper

from onnxq.arrays.pieces import Array
from onnxq.disk import regular_file
from onnxq.errors import LoadError, UnsupportedModelError

CHUNK = 1 << 20
"""Bytes read or written at a time."""

PACKED_BITS: dict[int, int] = {
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1), 4),
    **dict.fromkeys((TensorProto.INT2, TensorProto.UINT2), 2),
}
"""Types of which several elements share a byte."""


def numpy_dtype(onnx_type: int) -> np.dtype[Any]:
    """The numpy (or ml_dtypes) dtype of an ONNX element type."""
    try:
        return helper.tensor_dtype_to_np_dtype(onnx_type)
    except KeyError:
        raise UnsupportedModelError(
            f"the installed onnx does not know element type {onnx_type}",
            fix="install a newer onnx, or export the model again",
        ) from None


def bits_of(onnx_type: int) -> int:
    """The number of bits an element takes in raw or external data."""
    return PACKED_BITS.get(onnx_type) or 8 * numpy_dtype(onnx_type).itemsize


def packed_size(tensor: TensorProto) -> int:
    """The size of the values in raw or external data, in bytes."""
    return -(-math.prod(tensor.dims) * bits_of(tensor.data_type) // 8)


@dataclass(frozen=True)
class ExternalData:
    """The location of a tensor's bytes in an external file."""

    path: Path
    offset: int
    length: int
    stamp: tuple[int, ...]
    """Identity, size and time of the file when it was found; the offset is valid for no other."""

    @staticmethod
    def of(tensor: TensorProto, base_dir: Path | None) -> ExternalData:
        """Resolve the entries of `tensor`; the file must exist and be long enough."""
        who = f"initializer '{tensor.name}'"
        damaged = "the model file is damaged: export or copy it again"
        if tensor.data_type == TensorProto.STRING:
            raise LoadError(f"{who}: strings cannot be external data", fix=damaged)
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        # By name alone: model hubs keep the files themselves elsewhere and link to them.
        inside = os.path.normpath(location)
        if not location or os.path.isabs(inside) or Path(inside).parts[:1] in ((), ("..",)):
            raise LoadError(
                f"{who}: external data location '{location}' is not a file next to the model",
                fix="save the model again with its data file in the same folder",
            )
        path = (base_dir or Path()).absolute() / inside
        needed = packed_size(tensor)
        try:
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", needed))
        except ValueError:
            offset, length = -1, 0
        if offset < 0 or length != needed:
            raise LoadError(
                f"{who}: external data entries {entries} do not match a tensor of {needed} bytes",
                fix=damaged,
            )
        try:
            status = regular_file.status(path)
        except LoadError as error:
            raise LoadError(
                f"{who}: external data file '{path}': {error.what}",
                fix="copy the data file next to the model, under the name the model uses",
            ) from error
        if offset + length > status.st_size:
            raise LoadError(
                f"{who}: external data file '{path}' ends at {status.st_size}, "
                f"but bytes up to {offset + length} are needed",
                fix="the data file is truncated or belongs to another model: copy it again",
            )
        return ExternalData(path, offset, length, _stamp(status))

    @staticmethod
    def stamp_of(path: Path) -> tuple[int, ...]:
        """The stamp that identifies the file at `path`; empty if there is no file."""
        try:
            return _stamp(path.stat())
        except OSError:
            return ()

    def open(self) -> BinaryIO:
        """Open the file, which must be the one found when the model was read."""
        try:
            file = regular_file.open_(self.path)
        except LoadError as error:
            raise LoadError(
                f"external data file '{self.path}' can no longer be read: {error.what}",
                fix="load the model again once the file is back",
            ) from error
        if _stamp(os.fstat(file.fileno())) != self.stamp:
            file.close()
            raise LoadError(
                f"external data file '{self.path}' was changed after the model was loaded",
                fix="load the model again",
            )
        return file

    def chunks(self) -> Iterator[bytes]:
        """The bytes in pieces; streamed by read(), since mapped pages would count as memory."""
        with self.open() as file:
            file.seek(self.offset)
            left = self.length
            while left:
                piece = self._read(file, min(CHUNK, left))
                left -= len(piece)
                yield piece

    def read(self, start: int, length: int) -> bytes:
        """`length` of the bytes, from `start` on."""
        with self.open() as file:
            file.seek(self.offset + start)
            return self._read(file, length)

    def _read(self, file: BinaryIO, length: int) -> bytes:
        found = file.read(length)
        if len(found) < length:
            raise LoadError(
                f"external data file '{self.path}' was truncated while it was read",
                fix="do not write to the file during a conversion",
            )
        return found

    def map(self) -> Array:
        """The bytes, memory-mapped and read-only."""
        if not self.length:
            return np.empty(0, np.uint8)
        with self.open() as file:
            return np.memmap(file, np.uint8, "r", self.offset, (self.length,))


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
