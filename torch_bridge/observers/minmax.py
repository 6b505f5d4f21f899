"""The range of everything seen."""

from __future__ import annotations

from typing import ClassVar

from torch_bridge.observers.base import Observer


class MinMax(Observer):
    """Running minimum and maximum: min <- min(min, min(x)), max <- max(max, max(x))."""

    observer: ClassVar[str] = "minmax"
