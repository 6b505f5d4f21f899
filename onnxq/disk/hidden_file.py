"""Files under hidden names, and moving them to their final names."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import BinaryIO

from onnxq.disk.folder_lock import folder_lock, try_lock


def create(folder: Path, token: str, *, private: bool = True) -> tuple[Path, BinaryIO]:
    """A new hidden file, locked for as long as it is open.

    The caller must have locked the folder: other processes remove files that are not locked.
    """
    # Not private: with the mode that the user's umask gives to any new file.
    mode = 0o600 if private else 0o666
    for number in itertools.count():
        path = folder / f".onnxq-{token}-{number}.new"
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            try_lock(handle)
            return path, os.fdopen(handle, "r+b")
    raise AssertionError("the counter never runs out")


def take_mode(handle: int, like: os.stat_result) -> None:
    """Give an open file the owner, the group and the mode of another."""
    mode = stat.S_IMODE(like.st_mode)
    mine = os.fstat(handle)
    if mine.st_gid != like.st_gid:
        try:
            os.fchown(handle, -1, like.st_gid)
        except OSError:  # the rights of that group are not for ours
            mode = mode & ~0o070 | (mode & 0o007) << 3
    if mine.st_uid != like.st_uid:
        with contextlib.suppress(OSError):  # only root can
            os.fchown(handle, like.st_uid, -1)
    os.fchmod(handle, mode)


def put(source: Path, target: Path) -> None:
    """Move a file over another in one step; a link is followed, also to another file system."""
    place = Path(os.path.realpath(target))
    try:
        os.replace(source, place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with folder_lock(place.parent):
            temporary, file = create(place.parent, secrets.token_hex(8))
        try:
            with file:
                with source.open("rb") as content:
                    shutil.copyfileobj(content, file)
                file.flush()
                take_mode(file.fileno(), source.stat())
                os.fsync(file.fileno())
                shutil.copystat(source, temporary)
                os.replace(temporary, place)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        source.unlink()


def second_name(path: Path, other: Path) -> None:
    """Give a file another name, or copy it if the file system has no links."""
    real = os.path.realpath(path)
    try:
        os.link(real, other)
    except OSError:
        shutil.copy2(real, other)
