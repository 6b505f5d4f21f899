"""Moving average of the ranges of the batches."""

from __future__ import annotations

from torch_bridge.observers.ema import Ema


class EmaMinMax(Ema):
    """Moving average of minimum and maximum: m <- ratio * m + (1 - ratio) * m(x)."""
