"""A distribution that is installed as far as other programs can see, without files of code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest


def published(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    distribution: str,
    group: str,
    entries: Mapping[str, object],
) -> None:
    """Install entry points into a folder on sys.path; they load the objects given.

    An entry that is a text is the place to load from.
    """
    module = ModuleType(f"{distribution}_module")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    lines = [f"[{group}]"]
    for number, (name, thing) in enumerate(entries.items()):
        if isinstance(thing, str):
            lines.append(f"{name} = {thing}")
        else:
            setattr(module, f"thing_{number}", thing)
            lines.append(f"{name} = {module.__name__}:thing_{number}")
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    importlib.invalidate_caches()
