"""Files that once broke onnxq; they lie beside the repository and are no part of it."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent.parent / "shared" / "hostile"
