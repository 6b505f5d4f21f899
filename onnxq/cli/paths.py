"""Paths on the command line: an empty one is refused, and what was left half done is completed.

An earlier command that was killed may have left new files beside old ones in a folder that this
command is about to read or to write. They are seen to before anything else, and named.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from onnxq.cli import screen
from onnxq.disk.recovery import recover

_told: list[str] = []


def forget() -> None:
    """Begin a new command: nothing has been told yet."""
    _told.clear()


def path_given(text: str | Path) -> Path:
    """The path that a user means."""
    if text == "":  # Path("") would be the current folder
        raise typer.BadParameter("the path is empty")
    path = Path(text)
    folders = [path, path / "unproven"] if os.path.isdir(path) else [path.parent]
    for note in (note for folder in folders for note in recover(folder)):
        _told.append(note)
        screen.console(stderr=True).print(f"note: {note}", style="yellow")
    return path


def with_notes(document: Any) -> Any:
    """A JSON document whose notes begin with what was done about the folders."""
    if _told and isinstance(document, dict) and isinstance(document.get("notes"), list):
        return document | {"notes": [*_told, *document["notes"]]}
    return document
