"""Values of constants that stay where they are until somebody reads them.

An initializer's bytes live in the source protobuf or, as external data, in a file beside the
model. `StoredValues` reads them on demand: inline data as a view, external data memory-mapped.
Nothing is cached, so a model of many gigabytes costs no memory for weights that are not touched.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import onnx_graphsurgeon as gs
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper
from onnx_graphsurgeon.ir.tensor import LazyValues

from onnxq import regular_file
from onnxq.errors import InvalidModelError, LoadError, UnsupportedModelError
from onnxq.qparams import Array

_CHUNK = 1 << 20
_PACKED_BITS: dict[int, int] = {
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1), 4),
    **dict.fromkeys((TensorProto.INT2, TensorProto.UINT2), 2),
}

_PLAIN_NAMES = "BOOL INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64 FLOAT16 FLOAT DOUBLE"
_PLAIN_DTYPES: dict[int, np.dtype[Any]] = {
    onnx_type: helper.tensor_dtype_to_np_dtype(onnx_type)
    for onnx_type in map(TensorProto.DataType.Value, _PLAIN_NAMES.split())
    if sys.byteorder == "little"
}
"""Types whose bytes in a file are those in memory: these need none of onnx's conversions."""
_PLAIN_TYPES = {dtype: onnx_type for onnx_type, dtype in _PLAIN_DTYPES.items()}


def numpy_dtype(onnx_type: int) -> np.dtype[Any]:
    """The numpy (or ml_dtypes) dtype of an ONNX element type."""
    try:
        return helper.tensor_dtype_to_np_dtype(onnx_type)
    except KeyError:
        raise UnsupportedModelError(
            f"element type {onnx_type} is not known to the installed onnx",
            fix="install a newer onnx, or export the model again",
        ) from None


def packed_size(tensor: TensorProto) -> int:
    """How many bytes the values take in raw or external data; 4 and 2 bits are packed."""
    count = math.prod(tensor.dims)
    bits = _PACKED_BITS.get(tensor.data_type)
    return -(-count * bits // 8) if bits else count * numpy_dtype(tensor.data_type).itemsize


@dataclass(frozen=True)
class ExternalData:
    """Where the bytes of a tensor lie in a file of their own."""

    path: Path
    offset: int
    length: int
    stamp: tuple[int, ...]
    """Identity, size and time of the file as it was found: offsets hold for that file alone."""

    @staticmethod
    def of(tensor: TensorProto, base_dir: Path | None) -> ExternalData:
        """Resolve the entries of `tensor`; the file must exist and be long enough."""
        who = f"initializer '{tensor.name}'"
        if tensor.data_type == TensorProto.STRING:
            raise LoadError(
                f"{who}: strings are kept in the model itself, never as external data",
                fix="the model file is damaged: export or copy it again",
            )
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        # By name alone: model hubs keep the files themselves elsewhere and link to them.
        inside = os.path.normpath(location)
        if not location or os.path.isabs(inside) or Path(inside).parts[:1] in ((), ("..",)):
            raise LoadError(
                f"{who}: external data location '{location}' is not a file beside the model",
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
                f"{who}: external data entries {entries} do not fit a tensor of {needed} bytes",
                fix="the model file is damaged: export or copy it again",
            )
        try:
            status = regular_file.status(path)
        except LoadError as error:
            raise LoadError(
                f"{who}: external data file '{path}': {error.what}",
                fix="copy the data file next to the model, under the name the model gives",
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
        """What tells the file at `path` from any other; nothing where there is none."""
        try:
            return _stamp(path.stat())
        except OSError:
            return ()

    def open(self) -> BinaryIO:
        """The file, which must be the one that was there when the model was read."""
        try:
            file = regular_file.open_(self.path)
        except LoadError as error:
            raise LoadError(
                f"external data file '{self.path}' cannot be read any more: {error.what}",
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
        """The bytes in pieces: streamed by read(), since mapped pages would count as memory."""
        with self.open() as file:
            file.seek(self.offset)
            left = self.length
            while left:
                piece = file.read(min(_CHUNK, left))
                if not piece:
                    raise LoadError(
                        f"external data file '{self.path}' became shorter while it was read",
                        fix="do not write to the file while it is converted",
                    )
                left -= len(piece)
                yield piece

    def map(self) -> Array:
        """The bytes, memory-mapped and read-only."""
        if not self.length:
            return np.empty(0, np.uint8)
        with self.open() as file:
            return np.memmap(file, np.uint8, "r", self.offset, (self.length,))


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class StoredValues(LazyValues):  # type: ignore[misc]
    """Values of a TensorProto, read when asked for and never changed.

    It derives from graphsurgeon's LazyValues so that `gs.Constant` accepts it, but computes
    nothing at construction (the base class fails for types it does not know).
    """

    def __init__(self, tensor: TensorProto, base_dir: Path | None = None) -> None:
        self.tensor = tensor
        self.external: ExternalData | None = None
        _check_dims(tensor.dims, tensor.name)
        if tensor.data_location == TensorProto.EXTERNAL:
            self.external = ExternalData.of(tensor, base_dir)

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the tensor."""
        return tuple(self.tensor.dims)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type; ml_dtypes for what numpy lacks."""
        return numpy_dtype(self.tensor.data_type)

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    def load(self) -> Array:
        """The values, read-only."""
        if self.external is None:
            values = _decode(self.tensor)
        elif self.tensor.data_type in _PACKED_BITS:
            # Several elements a byte: unpacked by onnx, from a copy of these bytes alone.
            inline = TensorProto(
                data_type=self.tensor.data_type,
                dims=self.tensor.dims,
                raw_data=self.external.map().tobytes(),
            )
            values = _decode(inline)
        else:
            values = self.external.map().view(self.dtype).reshape(self.shape)
        values.setflags(write=False)
        return values


def _check_dims(dims: Sequence[int], name: str) -> None:
    # numpy would take -1 for "as many as there are".
    if any(dim < 0 for dim in dims):
        raise InvalidModelError(
            f"tensor '{name}': shape {list(dims)} has a negative dimension",
            fix="the file is damaged: export or copy it again",
        )


def _decode(tensor: TensorProto) -> Array:
    dtype = _PLAIN_DTYPES.get(tensor.data_type)
    try:
        if dtype is not None and tensor.HasField("raw_data") and not tensor.HasField("segment"):
            return np.frombuffer(tensor.raw_data, dtype).reshape(tuple(tensor.dims))
        return numpy_helper.to_array(tensor)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidModelError(
            f"tensor '{tensor.name}': its data does not fit type {tensor.data_type} and shape "
            f"{list(tensor.dims)} ({error})",
            fix="the file is damaged: export or copy it again",
        ) from error


class SparseStoredValues(StoredValues):
    """A sparse initializer: written back as it came; dense only for who asks."""

    def __init__(self, sparse: SparseTensorProto, base_dir: Path | None = None) -> None:
        self.sparse = sparse
        parts = (sparse.values, sparse.indices)
        if any(part.data_location == TensorProto.EXTERNAL for part in parts):
            # Rare and small: taken in at once, so that no reference to the old file is written.
            self.sparse = SparseTensorProto(dims=sparse.dims)
            self.sparse.values.CopyFrom(_inline(sparse.values, base_dir))
            self.sparse.indices.CopyFrom(_inline(sparse.indices, base_dir))
        self.tensor = self.sparse.values
        self.external = None
        self._where()

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the dense tensor."""
        return tuple(self.sparse.dims)

    def load(self) -> Array:
        """The dense values."""
        dense = np.zeros(self.shape, self.dtype)
        dense[self._where()] = _decode(self.tensor)
        dense.setflags(write=False)
        return dense

    def _where(self) -> tuple[Array, ...]:
        """The position of each value, along each axis."""
        shape, name, indices = self.shape, self.tensor.name, _decode(self.sparse.indices)
        _check_dims(shape, name)
        count = math.prod(self.tensor.dims)
        if len(self.tensor.dims) != 1 or indices.shape not in ((count,), (count, len(shape))):
            raise _sparse_error(name, f"{count} values have indices of shape {indices.shape}")
        if indices.dtype != np.int64:
            raise _sparse_error(name, f"its indices are {indices.dtype}, not int64")
        most = math.prod(shape) if indices.ndim == 1 else np.asarray(shape, np.int64)
        if indices.size and not np.all((indices >= 0) & (indices < most)):
            raise _sparse_error(name, f"an index lies outside of shape {list(shape)}")
        return tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, shape)


def _sparse_error(name: str, why: str) -> InvalidModelError:
    return InvalidModelError(
        f"sparse tensor '{name}': {why}", fix="the file is damaged: export or copy it again"
    )


def _inline(tensor: TensorProto, base_dir: Path | None) -> TensorProto:
    if tensor.data_location != TensorProto.EXTERNAL:
        return tensor
    return to_tensor_proto(gs.Constant(tensor.name, StoredValues(tensor, base_dir)))


def values_of(constant: gs.Constant) -> Array:
    """The values of a constant, read-only, without making graphsurgeon cache them."""
    values = constant._values
    if isinstance(values, LazyValues):
        return cast(Array, values.load())
    view = cast(Array, values).view()
    view.setflags(write=False)
    return view


BytesSource = Callable[[], Iterator[bytes]]


def to_tensor_proto(constant: gs.Constant) -> TensorProto:
    """The TensorProto of a constant, bytes included (external data becomes inline).

    It may be the very message the constant was read from: copy it before changing it.
    """
    values = constant._values
    if isinstance(values, StoredValues):
        if values.external is None:
            if values.tensor.name == constant.name:
                return values.tensor
            proto = TensorProto()
            proto.CopyFrom(values.tensor)
            proto.name = constant.name
            return proto
        proto = _without_data(values.tensor)
        proto.raw_data = b"".join(values.external.chunks())
        proto.name = constant.name
        return proto
    array = np.asarray(values, order="C")
    kind = _PLAIN_TYPES.get(array.dtype)
    if kind is not None:
        return TensorProto(
            name=constant.name, data_type=kind, dims=array.shape, raw_data=array.tobytes()
        )
    # graphsurgeon's exporter cannot pack 4 and 2 bits and mislabels one 8-bit float; onnx can.
    return numpy_helper.from_array(array, constant.name)


def _without_data(tensor: TensorProto) -> TensorProto:
    """A TensorProto with the type, shape and documentation of `tensor` but no bytes."""
    bare = TensorProto(data_type=tensor.data_type, dims=tensor.dims)
    if tensor.HasField("doc_string"):
        bare.doc_string = tensor.doc_string
    bare.metadata_props.extend(tensor.metadata_props)
    return bare


def to_external(constant: gs.Constant) -> tuple[TensorProto, int, BytesSource]:
    """A TensorProto without bytes, the number of bytes, and a way to stream them."""
    values = constant._values
    if isinstance(values, StoredValues):
        external = values.external
        if external is not None:
            bare = _without_data(values.tensor)
            bare.name = constant.name
            return bare, external.length, external.chunks
        if values.tensor.HasField("raw_data"):
            bare = _without_data(values.tensor)
            bare.name = constant.name
            tensor = values.tensor
            return bare, len(tensor.raw_data), lambda: iter((tensor.raw_data,))
    array = np.asarray(values_of(constant), order="C")
    kind = _PLAIN_TYPES.get(array.dtype)
    if kind is not None:  # straight from memory, without a copy of the whole
        bare = TensorProto(name=constant.name, data_type=kind, dims=array.shape)
        return bare, array.nbytes, lambda: _pieces(array)
    whole = numpy_helper.from_array(array, constant.name)
    bare = _without_data(whole)
    bare.name = constant.name
    return bare, len(whole.raw_data), lambda: iter((whole.raw_data,))


def _pieces(array: Array) -> Iterator[bytes]:
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK].tobytes()


def stored_size(constant: gs.Constant) -> int:
    """Roughly how many bytes the constant takes in a file."""
    values = constant._values
    return int(values.nbytes)
