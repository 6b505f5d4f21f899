"""A worker whose model ends the process, as onnxruntime does now and then.

The name of the file says when: `aborts-in-open.onnx`, `aborts-in-turn.onnx` and so on.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from onnxq.timing.child import serve
from onnxq.timing.worker import Worker


class DyingWorker(Worker):
    """Aborts in the request that the file's name mentions."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and f"aborts-in-{name}" in str(self._path):
            os.write(2, b"terminate called without an active exception\n")
            os.abort()
        return super().__getattribute__(name)

    def open(self, path: str, threads: int) -> Any:
        """Load the model."""
        if "aborts-in-open" in path:
            os.abort()
        if "fault-in-open" in path:
            raise ZeroDivisionError(path)
        return super().open(path, threads)


def main() -> None:
    """Serve the parent on the standard streams."""
    serve(DyingWorker(), sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
