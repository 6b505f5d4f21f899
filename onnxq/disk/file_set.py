"""Replaces files of one folder together: all of them, or none.

New files are written under hidden names next to the old ones. Once all are complete, and on disk,
they are moved into place under the lock of the folder; a journal makes several moves one step even
for a process that is killed between them (see `onnxq.disk.journal` and `onnxq.disk.recovery`). A
move that fails undoes the earlier ones.

A link is followed: the user means to replace the file it points to. Modes and owners of
replaced files are kept.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from onnxq.disk import journal, regular_file
from onnxq.disk.folder_lock import folder_lock
from onnxq.disk.hidden_file import create, put, second_name, take_mode
from onnxq.disk.journal import Move
from onnxq.disk.recovery import InterruptedWarning, recover_and_warn, recover_locked
from onnxq.errors import SaveError


def check_target(path: Path) -> os.stat_result | None:
    """Reject a target that must not be replaced by a file: folders, devices, pipes.

    Returns the status of the file that is there, if there is one.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise SaveError(f"{path} is a folder", fix="give a file name")
    if not stat.S_ISREG(status.st_mode):
        raise SaveError(f"{path} is not a regular file", fix="give the name of a file")
    return status


def check_folder(folder: Path) -> None:
    """Raise if no file can be written to `folder`, before any work; leaves no trace."""
    existing = folder
    try:
        while not os.path.lexists(existing) and existing != existing.parent:
            existing = existing.parent
        if not stat.S_ISDIR(existing.stat().st_mode):
            raise SaveError(f"{existing} is a file", fix="give a folder")
        # Names that are too long are found at the first one that does not exist.
        with contextlib.suppress(FileNotFoundError):
            folder.stat()
        with folder_lock(existing):
            temporary, file = create(existing, secrets.token_hex(8))
            file.close()
            temporary.unlink()
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error


def unwritable(path: Path, error: OSError | ValueError) -> SaveError:
    """The error for a failure of the system."""
    return SaveError(
        f"cannot write {path} ({regular_file.why(error)})",
        fix="check the path, and that its folder exists, is writable and has free space",
    )


@dataclass
class _Staged:
    target: Path
    temporary: Path
    file: BinaryIO
    like: os.stat_result | None
    """The file whose mode and owner the new file gets; None: the defaults."""


class FileSet:
    """Files to be written into `folder`; leaving the context moves them into place.

    Attributes:
        folder: where the files are.
        names: the names that files of the set have or will have.
        after: called when all files are in place.
    """

    def __init__(self, folder: Path, names: Iterable[str] = (), *, durable: bool = True) -> None:
        self.folder = folder
        self.names = set(names)
        self.after: list[Callable[[], None]] = []
        self._durable = durable  # on disk before it counts: survives a loss of power
        self._token = secrets.token_hex(8)
        self._staged: list[_Staged] = []
        self._torn = False  # neither the old nor the new set is complete; see the journal

    def stage(self, name: str, *, like: str | None = None) -> BinaryIO:
        """Open a new file that becomes `name`; if `name` is new, it gets the mode of `like`."""
        target = self.folder / name
        if any(staged.target == target for staged in self._staged):
            raise SaveError(f"{target} would be written twice", fix="give the outputs other names")
        self.names.add(name)
        status = check_target(target)
        if status is None and like is not None:
            status = check_target(self.folder / like)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with folder_lock(self.folder):
                temporary, file = create(self.folder, self._token, private=status is not None)
        except OSError as error:
            raise unwritable(target, error) from error
        self._staged.append(_Staged(target, temporary, file, status))
        return file

    def drop(self, file: BinaryIO) -> None:
        """Take a staged file out of the set again."""
        self._discard([staged for staged in self._staged if staged.file is file])
        self._staged = [staged for staged in self._staged if staged.file is not file]

    def __enter__(self) -> FileSet:
        recover_and_warn(self.folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, OSError) and self._staged:
                raise unwritable(self._staged[-1].target, error) from error
            if error is None and self._staged:
                self._commit()
        finally:
            self._discard(self._staged)
        if error is None:
            for call in self.after:
                call()

    def _commit(self) -> None:
        current = self._staged[0].target
        try:
            for staged in self._staged:
                current = staged.target
                staged.file.flush()
                if staged.like is not None:
                    take_mode(staged.file.fileno(), staged.like)
                if self._durable:
                    os.fsync(staged.file.fileno())
            with folder_lock(self.folder) as held:
                for note in recover_locked(self.folder) if held else ():
                    warnings.warn(note, InterruptedWarning, stacklevel=2)
                self._move_all()
        except OSError as error:
            raise unwritable(current, error) from error

    def _move_all(self) -> None:
        """Move all files, and on failure none."""
        if len(self._staged) == 1:
            (only,) = self._staged
            put(only.temporary, only.target)
            return
        path = self.folder / journal.journal_name(self._token)
        backups: dict[Path, Path] = {}
        current = self._staged[0].target
        try:
            for number, staged in enumerate(self._staged):
                if staged.target.exists():
                    backups[staged.target] = self.folder / f".onnxq-{self._token}-{number}.old"
                    second_name(staged.target, backups[staged.target])
            self._write_journal(path)
            for staged in self._staged:
                current = staged.target
                put(staged.temporary, current)
            self._sync_folder()
        except BaseException as error:
            if path.exists():
                self._take_back(backups)
            if not isinstance(error, OSError):
                raise
            raise unwritable(current, error) from error
        finally:
            if not self._torn:
                _remove([path, *backups.values()])

    def _take_back(self, backups: Mapping[Path, Path]) -> None:
        """Put all old files back.

        The journal stays valid at every step, so recovery after a kill completes the set.
        """
        self._torn = True
        try:
            for staged in reversed(self._staged):
                if not staged.temporary.exists():
                    second_name(staged.target, staged.temporary)
                if staged.target in backups:
                    put(backups[staged.target], staged.target)
                else:
                    Path(os.path.realpath(staged.target)).unlink(missing_ok=True)
        except OSError as error:
            names = ", ".join(staged.target.name for staged in self._staged)
            raise SaveError(
                f"{self.folder}: {names} could be neither replaced nor restored "
                f"({error.strerror}): the folder may contain old and new files",
                fix="check the disk; the next onnxq command in this folder completes the set",
            ) from error
        self._torn = False

    def _write_journal(self, path: Path) -> None:
        moves = []
        for staged in self._staged:
            status = os.fstat(staged.file.fileno())
            new = (status.st_size, status.st_mtime_ns)
            old = journal.stamp(staged.target)
            moves.append(Move(staged.temporary.name, staged.target.name, new, old))
        temporary, file = create(self.folder, self._token)
        try:
            with file:
                file.write(journal.dumps(moves))
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
                os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._sync_folder()

    def _sync_folder(self) -> None:
        if self._durable:
            with contextlib.suppress(OSError):  # not every file system can
                handle = os.open(self.folder, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)

    def _discard(self, every: Iterable[_Staged]) -> None:
        for staged in every:
            if not self._torn:
                _remove([staged.temporary])
            with contextlib.suppress(OSError):  # a full disk was reported before
                staged.file.close()


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # the next command removes it
            path.unlink(missing_ok=True)
