"""The one file that a command writes: checked before any work, and never one that it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxq.disk.file_set import check_folder, check_target
from onnxq.errors import OptionError

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


__all__ = ["check_output_file"]
