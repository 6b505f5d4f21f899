"""Reads regular files only: a device has no end, and a pipe may never have one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from onnxq.errors import LoadError
from onnxq.near_words import closest

LARGEST = 1 << 31
"""Largest file that is read whole: protobuf's 2 GiB."""

_FIX = "check the path"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def status(path: Path) -> os.stat_result:
    """The status of a regular file; raises LoadError for anything else."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise LoadError("no such file", fix=_FIX + _alike(path)) from None
    except (OSError, ValueError) as error:
        raise _unreadable(error) from error
    _check(found)
    return found


def open_(path: Path) -> BinaryIO:
    """A regular file, open for reading; raises LoadError for anything else."""
    status(path)
    try:
        # Without waiting: a pipe may have replaced the file in the meantime.
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise _unreadable(error) from error
    try:
        _check(os.fstat(file.fileno()))
    except LoadError:
        file.close()
        raise
    return file


def read(path: Path, most: int = LARGEST) -> bytes:
    """The content of a regular file of at most 2 GiB or `most`; LoadError for anything else."""
    with open_(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most < size <= LARGEST:
            raise LoadError(
                f"the file has {size} bytes; the limit is {most}",
                fix="check that it is the right file",
            )
        if size > LARGEST:
            raise LoadError(
                f"the file has {size} bytes; the limit is 2 GiB",
                fix="store large weights as external data next to the model",
            )
        try:
            return file.read(size)  # not LARGEST: Python allocates as much as it is asked for
        except OSError as error:
            raise _unreadable(error) from error


def _alike(path: Path) -> str:
    """A question for the file beside a missing one whose name is most like it."""
    try:
        near = closest(path.name, os.listdir(path.parent), count=1, cutoff=0.8)
    except (OSError, ValueError):
        return ""
    return f": did you mean '{path.parent / near[0]}'?" if near else ""


def _check(found: os.stat_result) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        pipe = "; write the output of the pipe to a file first" if kind == stat.S_IFIFO else ""
        raise LoadError(
            f"this is {_KINDS.get(kind, 'something else')}, not a regular file",
            fix=f"give a file{pipe}",
        )


def _unreadable(error: OSError | ValueError) -> LoadError:
    return LoadError(f"cannot be read ({why(error)})", fix=_FIX)


def why(error: OSError | ValueError) -> str:
    """The reason that the system gives for a failure."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
