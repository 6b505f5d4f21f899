"""Model files: read with clear errors, written all or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import onnx_graphsurgeon as gs
from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto, TensorProto

from onnxq.disk import regular_file
from onnxq.disk.data_file import Origin, check_needed, data_path
from onnxq.disk.file_set import FileSet
from onnxq.disk.recovery import recover_and_warn
from onnxq.errors import LoadError, SaveError
from onnxq.storage.tensors import (
    ComputedValues,
    ExternalData,
    StoredValues,
    stored_size,
    to_external,
    to_tensor_proto,
)

PROTOBUF_LIMIT = (1 << 31) - (1 << 20)
"""Largest single file: protobuf's 2 GiB minus a margin for everything but weights."""

EXTERNAL_THRESHOLD = 1024
"""Constants of fewer bytes stay in the model: shapes and scales must be readable."""

_ONE_FILE = 64 << 20
"""Largest total size of constants written as one file if the model had a data file before."""

_ALIGNMENT = 4096  # page size: lets a runtime map each tensor


def read_bytes(path: Path, most: int = regular_file.LARGEST) -> bytes:
    """The content of a file, read after completing interrupted work in its folder."""
    recover_and_warn(path.parent)
    return regular_file.read(path, most)


def read_model(path: Path) -> ModelProto:
    """Parse an ONNX file without its external data."""
    return parse_model(read_bytes(path))


def parse_model(data: bytes) -> ModelProto:
    """The model in the content of a file."""
    if not data:
        raise LoadError("the file is empty", fix="export or copy the model again")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise LoadError(
            "not an ONNX model, or truncated (protobuf cannot parse it)",
            fix="export or copy the model again, and check that the file is complete",
        ) from error
    return model


def needs_external_data(constants: Iterable[gs.Constant], came_with_data: bool = False) -> bool:
    """Whether values are in external data, or too large for one file.

    A single file is built in memory, so for a model that came with external data it must be small.
    """
    total = 0
    for constant in constants:
        values = constant._values
        if isinstance(values, StoredValues) and values.external is not None:
            return True
        total += stored_size(constant)
    return total > (_ONE_FILE if came_with_data else PROTOBUF_LIMIT)


Writer = Callable[[gs.Constant], TensorProto]


def write_model(
    to_proto: Callable[[Writer], ModelProto],
    path: Path,
    external_data: bool,
    origin: Origin | None = None,
) -> list[Path]:
    """Write a model and, if asked, its data file, both or none."""
    linked = os.path.islink(path) and not external_data
    real = Path(os.path.realpath(path)) if linked else path
    with FileSet(real.parent) as files:
        names = stage_model(files, to_proto, real.name, external_data, origin)
    return [path, *(path.with_name(name) for name in names[1:])]


def stage_model(
    files: FileSet,
    to_proto: Callable[[Writer], ModelProto],
    name: str,
    external_data: bool,
    origin: Origin | None = None,
) -> list[str]:
    """Add a model to `files` and, if asked, its data file; returns their names."""
    path = files.folder / name
    check_needed(path, origin)
    if not external_data:
        files.stage(name).write(serialize(to_proto(to_tensor_proto), f"{path}: the model"))
        return [name]
    data_file = data_path(path, origin, files.names)
    old = ExternalData.stamp_of(data_file)
    moved: list[tuple[StoredValues | ComputedValues, TensorProto]] = []
    data = files.stage(data_file.name, like=name)

    def write(constant: gs.Constant) -> TensorProto:
        values = constant._values
        if stored_size(constant) < EXTERNAL_THRESHOLD or values.dtype.kind in "OSU":
            return to_tensor_proto(constant)
        proto, length, chunks = to_external(constant)
        data.write(b"\0" * (-data.tell() % _ALIGNMENT))
        offset = data.tell()
        for chunk in chunks():
            data.write(chunk)
        proto.data_location = TensorProto.EXTERNAL
        place = {"location": data_file.name, "offset": str(offset), "length": str(length)}
        for key, value in place.items():
            proto.external_data.add(key=key, value=value)
        field = "external" if isinstance(values, StoredValues) else "source"
        source: ExternalData | None = getattr(values, field, None)
        if source is not None and source.stamp == old:
            moved.append((values, proto))
        return proto

    files.stage(name).write(serialize(to_proto(write), f"{path}: the model"))
    if not data.tell():
        files.drop(data)  # every constant was small enough to stay in the model
        return [name]

    def follow() -> None:
        """Let values from the file just replaced refer to the new file."""
        for values, proto in moved:
            stored = StoredValues(proto, data_file.parent)
            if isinstance(values, ComputedValues):
                values.settled = stored
            else:
                values.external = stored.external

    files.after.append(follow)
    return [name, data_file.name]


def serialize(model: ModelProto, what: str, fix: str = "save with external data") -> bytes:
    """The bytes of a model, called `what` in the error if it is too large."""
    try:
        return bytes(model.SerializeToString())
    except (EncodeError, ValueError) as error:
        raise SaveError(f"{what} is larger than protobuf's limit of 2 GiB", fix=fix) from error
