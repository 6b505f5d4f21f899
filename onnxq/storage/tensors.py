"""Values of constants that are not read until they are needed.

An initializer's bytes live in the source protobuf or, as external data, in a file next to the
model. `StoredValues` reads them on demand: inline data as a view, external data memory-mapped.
Nothing is cached, so untouched weights of many gigabytes cost no memory.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx_graphsurgeon as gs
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper
from onnx_graphsurgeon.ir.tensor import LazyValues

from onnxq.arrays import pieces
from onnxq.arrays.pieces import Array
from onnxq.errors import InvalidModelError
from onnxq.storage.external_data import PACKED_BITS, bits_of, packed_size
from onnxq.storage.external_data import ExternalData as ExternalData
from onnxq.storage.external_data import numpy_dtype as numpy_dtype

_PLAIN_NAMES = "BOOL INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64 FLOAT16 FLOAT DOUBLE"
_PLAIN_DTYPES: dict[int, np.dtype[Any]] = {
    onnx_type: helper.tensor_dtype_to_np_dtype(onnx_type)
    for onnx_type in map(TensorProto.DataType.Value, _PLAIN_NAMES.split())
    if sys.byteorder == "little"
}
"""Types with the same bytes in a file and in memory, which onnx need not convert."""
_PLAIN_TYPES = {dtype: onnx_type for onnx_type, dtype in _PLAIN_DTYPES.items()}
_LARGEST_DENSE = 1 << 31
"""Largest dense form of a sparse tensor in bytes, as in onnxruntime: a small file may claim any."""


class StoredValues(LazyValues):  # type: ignore[misc]
    """Values of a TensorProto, read when asked for and never changed.

    It derives from graphsurgeon's LazyValues so that `gs.Constant` accepts it, but computes
    nothing at construction (the base class fails for types it does not know).
    """

    __slots__ = ("external", "tensor")

    def __init__(self, tensor: TensorProto, base_dir: Path | None = None) -> None:
        self.tensor = tensor
        self.external: ExternalData | None = None
        _check_dims(tensor.dims, tensor.name)
        if tensor.data_location == TensorProto.EXTERNAL:
            self.external = ExternalData.of(tensor, base_dir)
        elif pieces.is_large(tensor.dims):  # small ones are checked when they are read
            _check_length(tensor)

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

    def parts(self) -> Iterator[tuple[pieces.Index, Array]]:
        """The values block by block; values in a file are in memory one block at a time."""
        if self.external is None and not (self._is_packed and self.tensor.HasField("raw_data")):
            return parts_of(self.load())
        inline = self.tensor.raw_data  # once: protobuf copies it at every access
        return ((at, self._part(at, inline)) for at in pieces.blocks(self.shape))

    def _part(self, at: pieces.Index, inline: bytes) -> Array:
        kind, external = self.tensor.data_type, self.external
        start, stop = pieces.span(self.shape, at)
        shape = [len(range(size)[each]) for each, size in zip(at, self.shape, strict=True)]
        bits = bits_of(kind)
        first, last = start * bits // 8, -(-stop * bits // 8)
        raw = inline[first:last] if external is None else external.read(first, last - first)
        if not self._is_packed:
            return np.frombuffer(raw, self.dtype).reshape(shape)
        # The first byte may begin with elements of the block before.
        skipped = start - first * 8 // bits
        part = TensorProto(
            name=self.tensor.name, data_type=kind, dims=[stop - start + skipped], raw_data=raw
        )
        return _decode(part)[skipped:].reshape(shape)

    @property
    def _is_packed(self) -> bool:
        return self.tensor.data_type in PACKED_BITS

    def load(self) -> Array:
        """The values, read-only."""
        is_large_raw = pieces.is_large(self.shape) and self.tensor.HasField("raw_data")
        if self._is_packed and (self.external is not None or is_large_raw):
            parts = (part for _, part in self.parts())
            values = pieces.assembled(self.shape, self.dtype, parts)
        elif self.external is None:
            values = _decode(self.tensor)
        else:
            values = self.external.map().view(self.dtype).reshape(self.shape)
        values.setflags(write=False)
        return values


def _check_length(tensor: TensorProto) -> None:
    """Reject dims that the data does not fill, before memory is allocated for them."""
    if tensor.HasField("raw_data") and not tensor.HasField("segment"):
        have, need = len(tensor.raw_data), packed_size(tensor)
        if have != need:
            raise damaged(
                f"tensor '{tensor.name}': type {tensor.data_type} and shape {list(tensor.dims)} "
                f"take {need} bytes, but its data has {have}"
            )


def _check_dims(dims: Sequence[int], name: str) -> None:
    # numpy would take -1 for "as many as there are".
    if dims and min(dims) < 0:
        raise damaged(f"tensor '{name}': shape {list(dims)} has a negative dimension")


def damaged(what: str) -> InvalidModelError:
    """The error for a file whose content contradicts itself."""
    return InvalidModelError(what, fix="the file is damaged: export or copy it again")


def _decode(tensor: TensorProto) -> Array:
    dtype = _PLAIN_DTYPES.get(tensor.data_type)
    try:
        if dtype is not None and tensor.HasField("raw_data") and not tensor.HasField("segment"):
            return np.frombuffer(tensor.raw_data, dtype).reshape(tuple(tensor.dims))
        return numpy_helper.to_array(tensor)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(
            f"tensor '{tensor.name}': its data does not match type {tensor.data_type} and shape "
            f"{list(tensor.dims)} ({error})"
        ) from error


class ComputedValues(LazyValues):  # type: ignore[misc]
    """Values that are computed from others whenever they are read."""

    settled: StoredValues | None = None
    """The saved values, once a file with them has replaced the source."""

    @property
    def source(self) -> ExternalData | None:
        """The file that the values are computed from, which must not change."""
        raise NotImplementedError

    def parts(self) -> Iterator[tuple[pieces.Index, Array]]:
        """The values block by block; no block is kept."""
        raise NotImplementedError


Codes = Array | StoredValues
"""Constant codes: in memory, or large ones in their source file."""


def parts_of(values: Codes | ComputedValues) -> Iterator[tuple[pieces.Index, Array]]:
    """The blocks of `values`, each with its index."""
    if isinstance(values, StoredValues | ComputedValues):
        return values.parts()
    return ((at, values[at]) for at in pieces.blocks(values.shape))


class SparseStoredValues(StoredValues):
    """A sparse initializer, written back unchanged and made dense on request."""

    def __init__(self, sparse: SparseTensorProto, base_dir: Path | None = None) -> None:
        self.sparse = sparse
        parts = (sparse.values, sparse.indices)
        if any(part.data_location == TensorProto.EXTERNAL for part in parts):
            # Rare and small: inlined at once, so no reference to the old file is written.
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

    def parts(self) -> Iterator[tuple[pieces.Index, Array]]:
        """The dense values block by block."""
        return parts_of(self.load())

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
        who = f"sparse tensor '{name}'"
        if self.nbytes > _LARGEST_DENSE:
            raise damaged(f"{who}: its dense form, which runtimes create, has {self.nbytes} bytes")
        count = math.prod(self.tensor.dims)
        if len(self.tensor.dims) != 1 or indices.shape not in ((count,), (count, len(shape))):
            raise damaged(f"{who}: {count} values have indices of shape {indices.shape}")
        if indices.dtype != np.int64:
            raise damaged(f"{who}: its indices are {indices.dtype}, not int64")
        most = math.prod(shape) if indices.ndim == 1 else np.asarray(shape, np.int64)
        if indices.size and not np.all((indices >= 0) & (indices < most)):
            raise damaged(f"{who}: an index is outside shape {list(shape)}")
        return tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, shape)


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
        proto = _without_data(values.tensor, constant.name)
        proto.raw_data = b"".join(values.external.chunks())
        return proto
    if isinstance(values, LazyValues):
        values = values.load()
    array = np.asarray(values, order="C")
    kind = _PLAIN_TYPES.get(array.dtype)
    if kind is not None:
        return TensorProto(
            name=constant.name, data_type=kind, dims=array.shape, raw_data=array.tobytes()
        )
    # graphsurgeon's exporter cannot pack 4 and 2 bits and mislabels one 8-bit float; onnx can.
    return numpy_helper.from_array(array, constant.name)


def _without_data(tensor: TensorProto, name: str) -> TensorProto:
    """A TensorProto with the type, shape and documentation of `tensor` but no bytes."""
    bare = TensorProto(name=name, data_type=tensor.data_type, dims=tensor.dims)
    if tensor.HasField("doc_string"):
        bare.doc_string = tensor.doc_string
    bare.metadata_props.extend(tensor.metadata_props)
    return bare


def to_external(constant: gs.Constant) -> tuple[TensorProto, int, BytesSource]:
    """A TensorProto without bytes, the number of bytes, and a way to stream them."""
    values = constant._values
    if isinstance(values, StoredValues):
        tensor, external = values.tensor, values.external
        if external is not None:
            return _without_data(tensor, constant.name), external.length, external.chunks
        if tensor.HasField("raw_data"):
            bare = _without_data(tensor, constant.name)
            return bare, len(tensor.raw_data), lambda: iter((tensor.raw_data,))
    kind = _PLAIN_TYPES.get(np.dtype(values.dtype))
    if kind is not None:
        whole = values if isinstance(values, ComputedValues) else values_of(constant)
        bare = TensorProto(name=constant.name, data_type=kind, dims=whole.shape)
        return bare, whole.nbytes, lambda: (part.tobytes() for _, part in parts_of(whole))
    array = values_of(constant)
    bare = _without_data(numpy_helper.from_array(np.empty(0, array.dtype)), constant.name)
    bare.dims[:] = array.shape
    flat = array.reshape(-1)  # each piece of it but the last fills whole bytes
    return (
        bare,
        packed_size(bare),
        lambda: (numpy_helper.from_array(part).raw_data for part in pieces.cut(flat)),
    )


def stored_size(constant: gs.Constant) -> int:
    """Roughly how many bytes the constant takes in a file."""
    return int(constant._values.nbytes)
