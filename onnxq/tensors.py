"""Values of constants that stay where they are until somebody reads them.

An initializer's bytes live in the source protobuf or, as external data, in a file beside the
model. `StoredValues` reads them on demand: inline data as a view, external data memory-mapped.
Nothing is cached, so a model of many gigabytes costs no memory for weights that are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto, helper, numpy_helper
from onnx_graphsurgeon.ir.tensor import LazyValues

from onnxq.errors import LoadError
from onnxq.qparams import Array

_CHUNK = 1 << 20
_PACKED = {
    *(TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2),
    TensorProto.FLOAT4E2M1,
}


def numpy_dtype(onnx_type: int) -> np.dtype[Any]:
    """The numpy (or ml_dtypes) dtype of an ONNX element type."""
    return cast("np.dtype[Any]", helper.tensor_dtype_to_np_dtype(onnx_type))


@dataclass(frozen=True)
class ExternalData:
    """Where the bytes of a tensor lie in a file of their own."""

    path: Path
    offset: int
    length: int

    @staticmethod
    def of(tensor: TensorProto, base_dir: Path | None) -> ExternalData:
        """Resolve the entries of `tensor`; the file must exist and be long enough."""
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        root = (base_dir or Path()).resolve()
        path = (root / location).resolve()
        if not location or not path.is_relative_to(root):
            raise LoadError(
                f"initializer '{tensor.name}': external data location '{location}' is not a file "
                "beside the model",
                fix="save the model again with its data file in the same folder",
            )
        offset = int(entries.get("offset", 0))
        if not path.is_file():
            raise LoadError(
                f"initializer '{tensor.name}': external data file '{path}' does not exist",
                fix="copy the data file next to the model, under the name the model gives",
            )
        size = path.stat().st_size
        length = int(entries.get("length", size - offset))
        if offset + length > size:
            raise LoadError(
                f"initializer '{tensor.name}': external data file '{path}' ends at {size}, "
                f"but bytes up to {offset + length} are needed",
                fix="the data file is truncated or belongs to another model: copy it again",
            )
        return ExternalData(path, offset, length)

    def chunks(self) -> Iterator[bytes]:
        """The bytes in pieces: streamed by read(), since mapped pages would count as memory."""
        with self.path.open("rb") as file:
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
        return np.memmap(self.path, np.uint8, "r", self.offset, (self.length,))


class StoredValues(LazyValues):  # type: ignore[misc]
    """Values of a TensorProto, read when asked for and never changed.

    It derives from graphsurgeon's LazyValues so that `gs.Constant` accepts it, but computes
    nothing at construction (the base class fails for types it does not know).
    """

    def __init__(self, tensor: TensorProto, base_dir: Path | None = None) -> None:
        self.tensor = tensor
        self.external: ExternalData | None = None
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
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def load(self) -> Array:
        """The values, read-only."""
        if self.external is None:
            values = cast(Array, numpy_helper.to_array(self.tensor))
        elif self.tensor.data_type in _PACKED:
            # Several elements a byte: unpacked by onnx, from a copy of these bytes alone.
            inline = TensorProto(
                data_type=self.tensor.data_type,
                dims=self.tensor.dims,
                raw_data=self.external.map().tobytes(),
            )
            values = cast(Array, numpy_helper.to_array(inline))
        else:
            values = self.external.map().view(self.dtype).reshape(self.shape)
        values.setflags(write=False)
        return values


class SparseStoredValues(StoredValues):
    """A sparse initializer: carried along, never read."""

    def __init__(self, sparse: Any) -> None:
        self.sparse = sparse
        self.tensor = sparse.values
        self.external = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the dense tensor."""
        return tuple(self.sparse.dims)

    def load(self) -> Array:
        """The dense values."""
        indices = numpy_helper.to_array(self.sparse.indices)
        dense = np.zeros(self.shape, self.dtype)
        where = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, self.shape)
        dense[where] = numpy_helper.to_array(self.tensor)
        dense.setflags(write=False)
        return dense


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
    """The TensorProto of a constant, bytes included (external data becomes inline)."""
    values = constant._values
    if isinstance(values, StoredValues):
        if values.external is None:
            proto = TensorProto()
            proto.CopyFrom(values.tensor)
            if proto.name != constant.name:
                proto.name = constant.name
            return proto
        proto = _without_data(values.tensor)
        proto.raw_data = b"".join(values.external.chunks())
        proto.name = constant.name
        return proto
    # graphsurgeon's exporter cannot pack 4 and 2 bits and mislabels one 8-bit float; onnx can.
    return numpy_helper.from_array(np.asarray(constant.values, order="C"), constant.name)


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
    whole = numpy_helper.from_array(np.asarray(values_of(constant), order="C"), constant.name)
    bare = _without_data(whole)
    bare.name = constant.name
    return bare, len(whole.raw_data), lambda: iter((whole.raw_data,))


def stored_size(constant: gs.Constant) -> int:
    """Roughly how many bytes the constant takes in a file."""
    values = constant._values
    return int(values.nbytes)
