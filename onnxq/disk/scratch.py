"""Temporary folders and files, for proofs, large arrays and weights that sessions read."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from onnxq.errors import SaveError

PREFIX = "onnxq-"


@contextlib.contextmanager
def scratch_errors() -> Iterator[None]:
    """Turn a system error about temporary files into an error that names their folder."""
    try:
        yield
    except OSError as error:
        where = tempfile.tempdir or "no usable folder for temporary files"
        raise SaveError(
            f"cannot write to {where} ({error.strerror or error})",
            fix="free some disk space there, or set the environment variable TMPDIR to another "
            "folder",
        ) from error


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is removed with everything in it."""
    with scratch_errors(), tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        yield Path(name)
