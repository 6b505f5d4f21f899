"""Paths on the command line: empty ones are rejected, and interrupted saves are completed.

A command that was killed may have left a mix of new and old files in a folder that this command is
about to read or write. Such folders are repaired first, and reported.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from onnxq.disk.recovery import recover
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
