"""Saves that are killed at each of their steps in turn, for tests of what is left.

`python -m tests.hostile.dying_saves FOLDER` makes FOLDER/<kind>-<number>/ for every kind of save:
the old set of files, and what a process made of it that was killed before its step of that number.
Where the recovery of such a folder was killed in turn, it is FOLDER/<kind>-<number>-<number>/.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

OLD = {"a.onnx": b"old model", "b.json": b"old ranges"}
NEW = {"a.onnx": b"the new model", "b.json": b"the new ranges", "c.bin": b"a new file"}
CALLS = ("open", "replace", "link", "unlink")
"""What changes names on a disk; a process may as well be killed after the one before."""


def save(folder: Path) -> None:
    from onnxq.disk.file_set import FileSet

    with FileSet(folder) as files:
        for name, content in NEW.items():
            files.stage(name).write(content)


def save_and_fail(folder: Path) -> None:
    """The last move fails, so that the others are taken back."""
    true = os.replace

    def replace(source: Any, target: Any) -> None:
        if Path(target).name == "c.bin":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        true(source, target)

    os.replace = replace  # type: ignore[assignment]
    save(folder)


def recover(folder: Path) -> None:
    from onnxq.disk.recovery import recover

    recover(folder)


KINDS: dict[str, Callable[[Path], None]] = {"save": save, "fail": save_and_fail}


def make_old(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, content in OLD.items():
        (folder / name).write_bytes(content)
    (folder / "a.onnx").chmod(0o600)


def die_at(step: int, work: Callable[[Path], None], folder: Path) -> bool:
    """Whether a process that did the work was killed before its call of that number."""
    child = os.fork()
    if not child:
        calls = iter(range(10**6))

        def counted(true: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                if next(calls) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return true(*arguments, **options)

            return call

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        os.fsync = lambda handle: None  # a killed process needs none, and it is slow
        try:
            work(folder)
        except Exception as error:
            os._exit(0 if "cannot write" in str(error) else 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status):
        raise AssertionError(f"{folder}: the work failed")
    return False


def deaths(root: Path) -> Iterator[Path]:
    """Folders as killed saves left them, and as killed recoveries of these left them."""
    for kind, work in KINDS.items():
        for step in range(10**6):
            folder = root / f"{kind}-{step}"
            make_old(folder)
            killed = die_at(step, work, folder)
            yield folder
            if killed and any(folder.glob("*.journal")):  # else recovery only removes files
                for second in range(10**6):
                    twin = root / f"{folder.name}-{second}"
                    shutil.copytree(folder, twin)
                    yield twin
                    if not die_at(second, recover, twin):
                        break
            if not killed:
                break


if __name__ == "__main__":
    import onnxq.disk.file_set
    import onnxq.disk.recovery  # noqa: F401

    print(sum(1 for _ in deaths(Path(sys.argv[1]))))
