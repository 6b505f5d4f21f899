"""Arrays in .npy and .npz files, read piece by piece along their first axis.

numpy maps an .npy file, but loads each array of an .npz file whole. Here both are streamed: the
header gives shape and type, then each piece is read from the (possibly compressed) file in turn.
"""

from __future__ import annotations

import contextlib
import functools
import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.lib import format as npy

from onnxq.errors import LoadError
from onnxq.qparams import Array


class Stack(Protocol):
    """An array that can be read in pieces."""

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

    def pieces(self, size: int | None) -> Iterator[Array]:
        """Consecutive pieces; copies, so that nobody changes the user's array."""
        if size is None:
            yield np.array(self._array, order="C")
            return
        for start in range(0, self.shape[0], size):
            yield np.array(self._array[start : start + size], order="C")


class StoredStack:
    """An array in an .npy file or in a member of an .npz file."""

    def __init__(self, path: Path, member: str | None = None) -> None:
        self._path, self._member = path, member

    @functools.cached_property
    def _layout(self) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        with self._open() as file:
            return self._header(file)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions, from the header of the file."""
        return self._layout[0]

    def pieces(self, size: int | None) -> Iterator[Array]:
        """Consecutive pieces, each read when asked for."""
        shape, fortran, _ = self._layout
        if size is None or fortran:  # in Fortran order the first axis is not contiguous
            with self._open() as file:
                self._header(file)
                whole = self._read(file, shape)
            yield from MemoryStack(whole).pieces(size)
            return
        with self._open() as file:
            self._header(file)
            for start in range(0, shape[0], size):
                yield self._read(file, (min(size, shape[0] - start), *shape[1:]))

    def _read(self, file: IO[bytes], shape: tuple[int, ...]) -> Array:
        _, fortran, dtype = self._layout
        length = math.prod(shape) * dtype.itemsize
        data = file.read(length)
        if len(data) != length:
            raise EOFError("the file ends too early")
        array = np.frombuffer(data, dtype)
        return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)

    @contextlib.contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        with readable(self._path), contextlib.ExitStack() as stack:
            if self._member is None:
                yield stack.enter_context(self._path.open("rb"))
            else:
                archive = stack.enter_context(zipfile.ZipFile(self._path))
                yield stack.enter_context(archive.open(self._member))

    @staticmethod
    def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        version = npy.read_magic(file)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"version {version} of the format is not supported")
        shape, fortran, dtype = readers[version](file)
        if dtype.hasobject:
            raise ValueError("the array holds Python objects instead of numbers")
        return shape, fortran, dtype


def in_memory(value: Any) -> MemoryStack:
    """A stack of anything numpy takes for an array."""
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
        return {name.removesuffix(".npy"): StoredStack(path, name) for name in members}


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what zipfile and numpy raise for a bad file into an error that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise LoadError(f"'{path}' does not exist", fix="check the path") from error
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise LoadError(
            f"'{path}' cannot be read: {error}",
            fix="write it again with numpy.save or numpy.savez",
        ) from error
