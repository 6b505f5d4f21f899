"""Arrays in .npy and .npz files, read piece by piece along their first axis.

numpy maps an .npy file, but loads each array of an .npz file whole. Here both are streamed: the
header gives shape and type, then each piece is read from the (possibly compressed) file in turn.

A header is checked before anything after it is read: the data it specifies must exist, by the size
of the file or the directory of the archive, and no piece may be larger than `LARGEST_PIECE`. In
Fortran order the first axis varies fastest, so a piece along it is spread over the whole array. An
.npy file is mapped then; in an archive such an array is read whole, up to `LARGEST_WHOLE`.
"""

from __future__ import annotations

import contextlib
import functools
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
from numpy.lib import format as npy

from onnxq.arrays.pieces import Array
from onnxq.disk import regular_file
from onnxq.errors import LoadError

LARGEST_PIECE = 2**30
"""Most bytes of a sample, or of anything else read at once."""
LARGEST_WHOLE = 2**28
"""Most bytes of an array in Fortran order in an archive."""


class Stack(Protocol):
    """An array that can be read in pieces."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""

    def pieces(self, size: int | None) -> Iterator[Array]:
        """Consecutive pieces of `size` along the first axis, or the whole (None)."""


class MemoryStack:
    """An array in memory."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype

    def pieces(self, size: int | None) -> Iterator[Array]:
        """Consecutive pieces; copies, so that the user's array is never changed."""
        if size is None:
            yield np.array(self._array, order="C")
            return
        for start in range(0, self.shape[0], size):
            yield np.array(self._array[start : start + size], order="C")


class _Layout(NamedTuple):
    """The content of a header, and the offset of the values."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    start: int

    def bytes(self, shape: tuple[int, ...]) -> int:
        """The size of a piece of that shape, in bytes."""
        return math.prod(shape) * self.dtype.itemsize


class StoredStack:
    """An array in an .npy file or in a member of an .npz file."""

    def __init__(self, path: Path, member: str | None = None) -> None:
        self._path, self._member = path, member

    @functools.cached_property
    def _layout(self) -> _Layout:
        with self._open() as (file, size):
            return self._checked(_header(file), size)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions, from the header of the file."""
        return self._layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements, from the header of the file."""
        return self._layout.dtype

    def pieces(self, size: int | None) -> Iterator[Array]:
        """Consecutive pieces, each read when asked for."""
        layout = self._layout
        shape = layout.shape
        step = shape if size is None else (min(size, shape[0]), *shape[1:])
        if layout.bytes(step) > LARGEST_PIECE:
            raise self._error(
                f"a piece of shape {list(step)} has {layout.bytes(step)} bytes; the limit is "
                f"{LARGEST_PIECE}",
                "give smaller samples (the first axis counts samples)",
            )
        if layout.fortran and self._member is None and layout.bytes(shape):
            with readable(self._path):
                mapped = np.memmap(self._path, layout.dtype, "r", layout.start, shape, "F")
            yield from MemoryStack(mapped).pieces(size)
        elif layout.fortran or size is None:
            if size is not None and layout.bytes(shape) > LARGEST_WHOLE:
                raise self._error(
                    f"the array has {layout.bytes(shape)} bytes in Fortran order, which is too "
                    "large to read at once",
                    "write it with numpy.ascontiguousarray, or as an .npy file",
                )
            with self._open() as (file, _):
                _header(file)
                whole = self._read(file, shape)
            yield from MemoryStack(whole).pieces(size)
        else:
            with self._open() as (file, _):
                _header(file)
                for start in range(0, shape[0], size):
                    yield self._read(file, (min(size, shape[0] - start), *shape[1:]))

    def _read(self, file: IO[bytes], shape: tuple[int, ...]) -> Array:
        layout = self._layout
        data = np.empty(layout.bytes(shape), np.uint8)
        view = data.data
        while view.nbytes:
            read = file.readinto(view[:_CHUNK])  # type: ignore[attr-defined]
            if not read:
                raise EOFError("the file ends too early")
            view = view[read:]
        array = data.view(layout.dtype) if data.size else np.empty(0, layout.dtype)
        return array.reshape(shape[::-1]).T if layout.fortran else array.reshape(shape)

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[IO[bytes], int]]:
        """The open file and its size, from the file system or the archive."""
        with readable(self._path), contextlib.ExitStack() as stack:
            if self._member is None:
                file = stack.enter_context(self._path.open("rb"))
                yield file, self._path.stat().st_size
            else:
                archive = stack.enter_context(zipfile.ZipFile(self._path))
                size = archive.getinfo(self._member).file_size
                yield stack.enter_context(archive.open(self._member)), size

    def _checked(self, layout: _Layout, size: int) -> _Layout:
        """The layout, if it is possible and the file contains such an array."""
        shape, _, dtype, start = layout
        if dtype.hasobject:
            raise self._error("the array contains Python objects instead of numbers", _SAVE_NUMBERS)
        if dtype.names is not None or dtype.subdtype is not None or not dtype.itemsize:
            raise self._error(f"its elements are of type {dtype}, not numbers", _SAVE_NUMBERS)
        if min(shape, default=0) < 0:
            raise self._error(f"its shape is {list(shape)}", _SAVE_AGAIN)
        # An axis of length 0 makes an array of no bytes out of any shape.
        held = math.prod(d for d in shape if d) * dtype.itemsize
        if layout.bytes(shape) > size - start or (0 in shape and held > LARGEST_PIECE):
            raise self._error(
                f"its header specifies {dtype} of shape {list(shape)}, but {size - start} bytes "
                "follow",
                _SAVE_AGAIN,
            )
        return layout

    def _error(self, why: str, fix: str) -> LoadError:
        member = "" if self._member is None else f", '{self._member}'"
        return LoadError(f"'{self._path}'{member}: {why}", fix=fix)


_CHUNK = 2**20
_NO_HEADER = (SyntaxError, TypeError, MemoryError, RecursionError, tokenize.TokenError)
"""Exceptions of Python's parser."""
_SAVE_AGAIN = "write it again with numpy.save or numpy.savez"
_SAVE_NUMBERS = "save an array of numbers"


def _header(file: IO[bytes]) -> _Layout:
    """The header; leaves the file positioned after it."""
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the format is not supported")
    try:
        shape, fortran, dtype = readers[version](file)
    except _NO_HEADER as error:
        raise ValueError("its header was not written by numpy") from error
    return _Layout(shape, fortran, dtype, file.tell())


def in_memory(value: Any) -> MemoryStack:
    """A stack of anything that numpy accepts as an array."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise LoadError(
            f"a sample is not an array: {error}", fix="give numpy arrays, alone or in a dict"
        ) from error
    return MemoryStack(array)


def open_npz(path: Path) -> dict[str, StoredStack]:
    """The arrays of an .npz file by name."""
    with readable(path):
        with zipfile.ZipFile(path) as archive:
            members = [n for n in archive.namelist() if n.endswith(".npy")]
        if len(set(members)) != len(members):
            raise ValueError("two of its arrays have the same name")
        return {name.removesuffix(".npy"): StoredStack(path, name) for name in members}


_UNREADABLE = (
    *(OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    RuntimeError,  # encrypted, or compressed in a way that zipfile does not know
)


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn exceptions of zipfile and numpy for a bad file into an error that names it."""
    try:
        regular_file.status(path)
    except LoadError as error:
        raise LoadError(f"'{path}': {error.what}", fix=error.fix) from error
    try:
        yield
    except PermissionError as error:
        raise LoadError(
            f"'{path}' cannot be read: {error.strerror or error}", fix="check its permissions"
        ) from error
    except _UNREADABLE as error:
        raise LoadError(f"'{path}' cannot be read: {error}", fix=_SAVE_AGAIN) from error
