"""The planned moves of a set of files, written before the first file is moved.

All files of a set are complete, under hidden names, before the journal appears; it goes away after
the last move. So a process that is killed leaves the old set (no journal: the hidden files are
waste), the new set, or a journal that says how to get from one to the other:

    .onnxq-<token>-<number>.new    a complete file, or one that is being written
    .onnxq-<token>-<number>.old    a second name of a file that was replaced, to put it back
    .onnxq-<token>.journal         the moves

Size and time of each file, old and new, show whether it was changed in between.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

OURS = re.compile(r"\.onnxq-([0-9a-f]{16})(?:-\d{1,9}\.(new|old)|\.(journal))")
"""The names of onnxq's hidden files in user folders; no other file is touched."""

_LARGEST = 1 << 24
"""Largest journal that is read, in bytes: a set has a few files."""

Stamp = tuple[int, int]
"""Size, and modification time in nanoseconds."""


def stamp(path: Path) -> Stamp | None:
    """Stamp of the file that `path` points to; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class Move:
    """One file of a set: both names are in the folder of the journal."""

    source: str
    target: str
    new: Stamp
    old: Stamp | None
    """Stamp of the file that is replaced; None if there was none."""


def journal_name(token: str) -> str:
    """The name of the journal of a set."""
    return f".onnxq-{token}.journal"


def dumps(moves: Sequence[Move]) -> bytes:
    """The content of a journal."""
    about = "onnxq was replacing these files; its next command in this folder completes this"
    return json.dumps({"about": about, "moves": [asdict(m) for m in moves]}).encode()


def read(path: Path) -> list[Move]:
    """The moves of a journal.

    Raises ValueError for anything that onnxq did not write: a folder may come from anywhere, and a
    forged journal must not move files outside that folder.
    """
    folder = path.parent.stat()
    token = token_of(path.name)
    _check_owner(path, folder)
    if path.stat().st_size > _LARGEST:
        raise ValueError("it is too large")
    try:
        moves = [_move(entry) for entry in json.loads(path.read_bytes())["moves"]]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("it does not list moves") from error
    for move in moves:
        if token_of(move.source) != token or not _is_name(move.target):
            raise ValueError(f"it would move {move.source!r} to {move.target!r}")
        source = path.with_name(move.source)
        if os.path.lexists(source):
            _check_owner(source, folder)
    return moves


def _is_name(text: str) -> bool:
    return text not in ("", ".", "..") and not set(text) & {"/", "\0"}


def token_of(name: str) -> str:
    """The token in the name of a hidden file; empty if it is not one of onnxq's."""
    found = OURS.fullmatch(name)
    return found[1] if found else ""


def _check_owner(path: Path, folder: os.stat_result) -> None:
    """Raise if `path` belongs neither to this user nor to the owner of the folder."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), folder.st_uid):
        raise ValueError(f"'{path.name}' belongs to another user")


def _move(entry: object) -> Move:
    match entry:
        case {
            "source": str(source),
            "target": str(target),
            "new": [int(size), int(time)],
            "old": ([int(), int()] | None) as old,
        }:
            return Move(source, target, (size, time), None if old is None else (old[0], old[1]))
    raise ValueError("it does not list moves")
