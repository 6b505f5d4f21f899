"""Models quantized by other tools: they lie beside the repository and are no part of it."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[3] / "shared" / "fixtures"
