"""Observers that describe the latest batch only, as an initial value for training wants."""

from __future__ import annotations

from torch import Tensor

from torch_bridge.observers.base import Observer


class LastBatch(Observer):
    """Base of the observers that keep nothing of earlier batches."""

    def merge(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The new range."""
        return low, high
