"""Temporary folders outside the user's own, for proofs and for weights that sessions read."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from onnxq.errors import SaveError

PREFIX = "onnxq-"


@contextlib.contextmanager
def scratch_errors() -> Iterator[None]:
    """Turn what the system says about a temporary folder into an error that names it."""
    try:
        yield
    except OSError as error:
        where = tempfile.tempdir or "no folder for temporary files is usable"
        raise SaveError(
            f"{where}: cannot be written ({error.strerror or error})",
            fix="make room there, or set TMPDIR to another folder",
        ) from error


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is removed with all that is in it."""
    with scratch_errors(), tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        yield Path(name)
