"""Recovers a folder after a killed process: half-moved sets are completed, waste is removed.

A journal (see `onnxq.disk.journal`) whose process is dead is carried out: each file of the set that
is still under its hidden name is moved. A file that was changed in the meantime is never
overwritten: the set is then given up and reported, since neither the old nor the new one is
complete.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from onnxq.disk import journal
from onnxq.disk.folder_lock import folder_lock, try_lock
from onnxq.disk.journal import OURS, Move
from onnxq.errors import SaveError


class InterruptedWarning(UserWarning):
    """Files of an interrupted conversion were found; the message says what was done with them."""


def recover_and_warn(folder: Path) -> None:
    """Recover `folder`, and report it by a warning."""
    for note in recover(folder):
        warnings.warn(note, InterruptedWarning, stacklevel=3)


def recover(folder: Path) -> list[str]:
    """Complete or remove what dead processes left in `folder`; returns what was done.

    Nothing is raised: a folder that cannot be written may still be read from.
    """
    if not _ours(folder):
        return []
    try:
        with folder_lock(folder) as held:
            return recover_locked(folder) if held else _without_locks(folder)
    except SaveError as error:  # a live process keeps moving files
        return [error.what]
    except OSError:  # the folder can be listed, but not opened
        return []


def recover_locked(folder: Path) -> list[str]:
    """`recover` for a caller that holds the lock of `folder`."""
    notes: list[str] = []
    for name in _ours(folder):
        if name.endswith(".journal"):
            notes += _finish(folder / name)
    removed = sum(_remove_waste(folder / name) for name in _ours(folder))
    if removed:
        notes.append(
            f"{folder}: removed {removed} temporary file{'s' * (removed > 1)} of an interrupted "
            "onnxq"
        )
    return notes


def _ours(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if OURS.fullmatch(name))
    except (OSError, ValueError):  # reported by the caller that reads or writes there
        return []


def _finish(path: Path) -> list[str]:
    """Carry out a journal and remove it."""
    folder = path.parent
    try:
        moves = journal.read(path)
    except (OSError, ValueError) as error:
        return [f"{path} is not a valid journal ({error}); leave it to its owner, or remove it"]
    told = f"{folder}: onnxq was interrupted while replacing {_names(moves)}"
    pending = [move for move in moves if os.path.lexists(folder / move.source)]
    try:
        given_up = [move for move in pending if not _may_move(folder, move)]
        if given_up:
            return [_give_up(path, told, moves, pending, given_up)]
        for move in pending:
            os.replace(folder / move.source, folder / move.target)
        path.unlink()
    except OSError as error:
        left = _names(m for m in pending if os.path.lexists(folder / m.source))
        return [
            f"{told}; this cannot be completed now ({error.strerror}), so these files may still "
            f"be old: {left or 'none'}"
        ]
    if not pending:
        return [f"{told}; all are in place"]
    return [f"{told}; completed now: {_names(pending)}"]


def _names(moves: Iterable[Move]) -> str:
    """The file names, escaped: they come from a file, and must not act on a terminal."""
    targets = (move.target for move in moves)
    return ", ".join(name if name.isprintable() else ascii(name) for name in targets)


def _may_move(folder: Path, move: Move) -> bool:
    """Whether nothing changed since the process died. A link is not followed out of the folder."""
    target = folder / move.target
    if target.is_symlink():
        return False
    known = (None, move.old, move.new)
    return journal.stamp(folder / move.source) == move.new and journal.stamp(target) in known


def _give_up(
    path: Path, told: str, moves: Sequence[Move], pending: Sequence[Move], changed: Sequence[Move]
) -> str:
    for move in pending:
        (path.parent / move.source).unlink()
    path.unlink()
    told = f"{told}; {_names(changed)} has changed since or is a link, and was left as is"
    if len(pending) == len(moves):
        return f"{told}: none was replaced"
    return f"{told}: convert again, since these files are still old: {_names(pending)}"


def _remove_waste(path: Path) -> bool:
    """Remove a hidden file that no process writes and no journal needs; returns whether it did."""
    used_by = path.with_name(journal.journal_name(journal.token_of(path.name)))
    if path == used_by or used_by.exists():
        return False
    try:
        if path.name.endswith(".old"):
            path.unlink()
            return False  # a second name, so no content is lost
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if try_lock(handle) is True:
                path.unlink()
                return True
        finally:
            os.close(handle)
    except OSError:  # not ours to remove, or gone already
        pass
    return False


def _without_locks(folder: Path) -> list[str]:
    journals = [name for name in _ours(folder) if name.endswith(".journal")]
    return [
        f"{folder}: {name} was left by an onnxq that is still running or was interrupted; this "
        "disk has no locks, so onnxq cannot know which: convert again and remove it"
        for name in journals
    ]
