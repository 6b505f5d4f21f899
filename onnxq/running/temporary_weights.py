"""Weights too large for one protobuf message, kept in a file while a session needs them.

Protobuf's limit is 2 GiB. A larger model in memory is passed to onnxruntime as a small message
whose weights are external data in a temporary folder. The user's folders are never written to.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

import onnx
import onnx_graphsurgeon as gs
from onnx import ModelProto, TensorProto

from onnxq.disk.scratch import PREFIX, scratch_errors
from onnxq.storage.tensors import stored_size, to_external, to_tensor_proto

_FILE = "weights.bin"
INLINE = 1024  # smaller tensors stay inline: onnxruntime reads shapes and scales while loading
_LARGE = 1 << 20  # constants of a Model of at least this size are streamed, never held in memory


class Spill:
    """A temporary folder with one file of weights.

    It is created when first needed and removed with the last session that holds this object.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None  # None: there are no weights yet

    def make_folder(self) -> Path:
        """The folder, which is created if there is none yet."""
        if self.folder is None:
            with scratch_errors():
                self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        return self.folder

    def write(self, constant: gs.Constant) -> TensorProto:
        """The TensorProto of a constant of a Model; the bytes of a large one are streamed."""
        if stored_size(constant) < _LARGE:
            return to_tensor_proto(constant)
        bare, _, chunks = to_external(constant)
        return self.append(bare, chunks())

    def lighten(self, proto: ModelProto) -> ModelProto:
        """A copy of `proto` whose large initializers are in the file."""
        light = ModelProto()
        _copy_fields(proto, light, but="graph")
        _copy_fields(proto.graph, light.graph, but="initializer")
        for tensor in proto.graph.initializer:
            raw = tensor.raw_data
            if len(raw) < INLINE:
                light.graph.initializer.append(tensor)
                continue
            bare = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            light.graph.initializer.append(self.append(bare, (raw,)))
        return light

    def append(self, bare: TensorProto, chunks: Iterable[bytes]) -> TensorProto:
        """`bare`, with its bytes in the file."""
        with scratch_errors(), Path(self.make_folder(), _FILE).open("ab") as file:
            offset = file.tell()
            for chunk in chunks:
                file.write(chunk)
            length = file.tell() - offset
        bare.data_location = TensorProto.EXTERNAL
        for key, value in (("location", _FILE), ("offset", offset), ("length", length)):
            bare.external_data.append(onnx.StringStringEntryProto(key=key, value=str(value)))
        return bare


def _copy_fields(
    source: ModelProto | onnx.GraphProto, target: ModelProto | onnx.GraphProto, but: str
) -> None:
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if isinstance(value, (str, bytes, int)):
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).MergeFrom(value)
