"""Paths on the command line: empty ones are rejected, and interrupted saves are completed.

A command that was killed may have left a mix of new and old files in a folder that this command is
about to read or write. Such folders are repaired first, and reported. A file that is written is
checked before any work; it is never one that the command reads.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from onnxq.disk.file_set import check_folder, check_target
from onnxq.disk.recovery import recover
from onnxq.errors import OptionError
from onnxq.views import screen

_told: list[str] = []


def forget() -> None:
    """Begin a new command: nothing has been reported yet."""
    _told.clear()


def path_given(text: str | Path) -> Path:
    """The path the user means."""
    if text == "":  # Path("") would be the current folder
        raise typer.BadParameter("the path is empty")
    path = Path(text)
    folders = [path, path / "unproven"] if os.path.isdir(path) else [path.parent]
    for note in (note for folder in folders for note in recover(folder)):
        _told.append(note)
        screen.console(stderr=True).print(f"note: {note}", style="yellow")
    return path


def with_notes(document: Any) -> Any:
    """A JSON document whose notes begin with the repairs of folders."""
    if _told and isinstance(document, dict) and isinstance(document.get("notes"), list):
        return document | {"notes": [*_told, *document["notes"]]}
    return document


_ENDINGS = (".onnx", ".npz", ".npy", ".html", ".stats", ".json", ".csv", ".png", ".jpg", ".py")
"""Names that end so say what is in the file: another kind of file would surprise its reader."""


def check_output_file(path: Path, ending: str, *inputs: Any) -> None:
    """Raise if the file cannot be written, if a command reads it, or if its name is misleading."""
    check_target(path)
    check_folder(path.parent)
    for given in inputs:
        if isinstance(given, str | Path) and path.exists() and _is_same(path, Path(given)):
            raise OptionError(
                f"'{path}' is an input of this command, and would be replaced",
                fix=f"give another name for what is written, such as {path.stem}-new{ending}",
            )
    found = path.suffix.lower()
    if found in _ENDINGS and found != ending:
        raise OptionError(
            f"'{path}' ends with {found}, but what is written is no such file",
            fix=f"give a name that ends with {ending}, such as {path.stem}{ending}",
        )


def _is_same(path: Path, given: Path) -> bool:
    return given.exists() and path.samefile(given)
