"""Observers that describe only the latest batch, as needed for initial values of training."""

from __future__ import annotations

from torch import Tensor

from torch_bridge.observers.base import Observer


class LastBatch(Observer):
    """Base of the observers that forget earlier batches."""

    def merge(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The new range."""
        return low, high
