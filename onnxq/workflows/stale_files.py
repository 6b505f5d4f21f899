"""Files of an earlier conversion that are next to new ones and do not belong to them.

A conversion may write fewer files than the previous one into the same folder: another variant, or
no ranges if they would be wrong. A file that only the previous one wrote then describes another
network, next to files with the same stem. A consumer that loads both computes neither.

Names are all that is known about such files: a user may have made one of that name. So they are
reported and never removed. Meant are the names that the backend writes in any of its variants, side
files of any backend next to a model written now, and the data file of a model that no longer needs
one. Files of other backends are a set of their own and stay out of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from onnxq.backend import Backend, Output, TableFile, backends
from onnxq.discovery import Broken

_DATA = re.compile(r"(\.\d+)?\.data$")  # see onnxq.disk.data_file


def stale_files(folder: Path, stem: str, backend: Backend, written: Iterable[Path]) -> list[Path]:
    """Files in `folder` with the names of `backend`'s files that were not `written` now."""
    now = {path.name for path in written}
    others = {path.name for path in folder.glob("*") if path.name.startswith(stem)} - now
    if not others:
        return []
    names = {f"{stem}{suffix}" for suffix in _suffixes(backend, now, stem)}
    data = {name for name in others if _DATA.sub("", name) in now | names}
    return sorted(folder / name for name in others & (names | data))


def _suffixes(backend: Backend, now: set[str], stem: str) -> Iterator[str]:
    known = (other for other in backends().values() if not isinstance(other, Broken))
    for other in (backend, *known):
        for output in _outputs(other):
            beside = output.beside if isinstance(output, TableFile) else None
            if other.name == backend.name or f"{stem}{beside}" in now:
                yield output.suffix


def _outputs(backend: Backend) -> Iterator[Output]:
    yield from backend.outputs
    for name in backend.variants:
        yield from backend.variant(name).outputs
