"""Files on disk: read with clear errors, written all or nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import onnx_graphsurgeon as gs
from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto, TensorProto

from onnxq.errors import LoadError, SaveError
from onnxq.tensors import ExternalData, StoredValues, stored_size, to_external, to_tensor_proto

PROTOBUF_LIMIT = (1 << 31) - (1 << 20)
"""Largest single file: protobuf's 2 GiB less a margin for what is not weights."""

EXTERNAL_THRESHOLD = 1024
"""Constants below this many bytes stay in the model: shapes and scales must be readable."""

_ALIGNMENT = 4096  # page size: lets a runtime map each tensor


def read_model(path: Path) -> ModelProto:
    """Parse an ONNX file without its external data."""
    fix = "check the path"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise LoadError("no such file", fix=fix) from None
    except OSError as error:
        raise LoadError(f"cannot be read ({error.strerror})", fix=fix) from error
    if not data:
        raise LoadError("the file is empty", fix="export or copy the model again")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise LoadError(
            "not an ONNX model, or a truncated one (protobuf cannot parse it)",
            fix="export or copy the model again, and check that the whole file arrived",
        ) from error
    return model


def needs_external_data(constants: Iterable[gs.Constant]) -> bool:
    """Whether the model came with external data or is too large for one file."""
    total = 0
    for constant in constants:
        values = constant._values
        if isinstance(values, StoredValues) and values.external is not None:
            return True
        total += stored_size(constant)
    return total > PROTOBUF_LIMIT


def write_model(
    to_proto: Callable[[Callable[[gs.Constant], TensorProto]], ModelProto],
    path: Path,
    external_data: bool,
) -> list[Path]:
    """Write a model and, if asked, its data file `<name>.data`, both or none."""
    if not external_data:
        with replacing([path]) as (file,):
            file.write(_serialize(to_proto(to_tensor_proto), path))
        return [path]
    data_path = path.with_name(path.name + ".data")
    old = ExternalData.stamp_of(data_path)
    moved: list[tuple[StoredValues, ExternalData]] = []
    with replacing([data_path, path]) as (data, file):

        def write(constant: gs.Constant) -> TensorProto:
            values = constant._values
            if stored_size(constant) < EXTERNAL_THRESHOLD or values.dtype.kind in "OSU":
                return to_tensor_proto(constant)
            proto, length, chunks = to_external(constant)
            data.write(b"\0" * (-data.tell() % _ALIGNMENT))
            offset = data.tell()
            for chunk in chunks():
                data.write(chunk)
            external = values.external if isinstance(values, StoredValues) else None
            if external is not None and external.stamp == old:
                moved.append((values, replace(external, path=data_path.absolute(), offset=offset)))
            proto.data_location = TensorProto.EXTERNAL
            for key, value in (
                ("location", data_path.name),
                ("offset", str(offset)),
                ("length", str(length)),
            ):
                entry = proto.external_data.add()
                entry.key, entry.value = key, value
            return proto

        file.write(_serialize(to_proto(write), path))
    if not data_path.stat().st_size:
        data_path.unlink()  # every constant was small enough to stay in the model
        return [path]
    # Values that lay in the file just replaced lie in the new one from now on.
    new = ExternalData.stamp_of(data_path)
    for values, external in moved:
        values.external = replace(external, stamp=new)
    return [path, data_path]


def write_text(path: Path, text: str) -> Path:
    """Write a text file, all or nothing."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> Path:
    """Write a file, all or nothing."""
    with replacing([path]) as (file,):
        file.write(data)
    return path


def check_target(path: Path) -> None:
    """Refuse what must not be replaced by a file: folders, devices, pipes."""
    if path.is_dir():
        raise SaveError(f"{path} is a folder", fix="give a file name")
    if path.exists() and not path.is_file():
        raise SaveError(f"{path} is not a regular file", fix="give the name of a file")


def check_folder(folder: Path) -> None:
    """Raise where no file can be written to `folder`, before work is spent; leaves no trace."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise SaveError(f"{existing} is a file", fix="give a folder")
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".onnxq-"):
            pass
    except OSError as error:
        raise SaveError(
            f"{folder}: cannot be written ({error.strerror or error})",
            fix="check that the folder is writable and has room",
        ) from error


def _keep(path: Path, backup: Path) -> None:
    """A second name for a file, or a copy where the file system has no links."""
    try:
        os.link(path, backup)
    except OSError:
        shutil.copy2(path, backup)


def _serialize(model: ModelProto, path: Path) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except (EncodeError, ValueError) as error:
        raise SaveError(
            f"{path}: the model is larger than the 2 GiB a protobuf can hold",
            fix="save with external data",
        ) from error


@contextlib.contextmanager
def replacing(paths: list[Path]) -> Iterator[list[BinaryIO]]:
    """Open temporary files beside `paths`; on success move all into place, else none."""
    # A link is followed: its target is what the user means to replace.
    paths = [path.resolve() if path.is_symlink() else path for path in paths]
    made: list[tuple[Path, BinaryIO]] = []
    current = paths[0]
    try:
        for current in paths:
            check_target(current)
            current.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=current.parent, prefix=f".{current.name[:32]}.")
            made.append((Path(name), os.fdopen(handle, "wb")))
        yield [file for _, file in made]
        for temporary, file in made:
            file.close()
            # mkstemp makes private files; give what an ordinary open() would have given.
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
        move_all(list(zip((temporary for temporary, _ in made), paths, strict=True)))
    except OSError as error:
        raise _unwritable(current, error) from error
    finally:
        for temporary, file in made:
            with contextlib.suppress(OSError):  # a full disk is reported above
                file.close()
            temporary.unlink(missing_ok=True)


def move_all(moves: list[tuple[Path, Path]]) -> None:
    """Move complete files to their places, all or none.

    A link at the target is followed, and may lead to another file system. When moving a later file
    fails, the earlier ones are put back from hard links.
    """
    staged: list[tuple[Path, Path]] = []
    scratch: list[Path] = []
    moved: list[tuple[Path, Path | None]] = []
    current = moves[0][1]
    try:
        for source, current in moves:
            check_target(current)
            if not current.is_symlink():
                staged.append((source, current))
                continue
            target = current.resolve()
            # Only within one folder is a move sure to be one step.
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:32]}.")
            os.close(handle)
            scratch.append(Path(name))
            shutil.copy2(source, name)
            staged.append((Path(name), target))
        for source, current in staged:
            backup = None
            if current != staged[-1][1] and current.exists():
                backup = source.with_name(source.name + ".old")
                scratch.append(backup)
                _keep(current, backup)
            os.replace(source, current)
            moved.append((current, backup))
    except BaseException as error:
        for done, backup in reversed(moved):
            if backup is None:
                done.unlink(missing_ok=True)
            else:
                os.replace(backup, done)
        if not isinstance(error, OSError):
            raise
        raise _unwritable(current, error) from error
    finally:
        for path in scratch:
            path.unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> SaveError:
    return SaveError(
        f"{path}: cannot be written ({error.strerror or error})",
        fix="check that the folder exists, is writable and has room",
    )
