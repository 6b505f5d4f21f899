"""What is kept of one tensor's values over all samples: nothing of it grows with their number.

Every part is merged exactly: counts and exact sums are added, extremes are compared. So the
statistics of several parts of the data, merged in any order, are those of one run over all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.calibration.bit_histogram import BitHistogram
from onnxq.calibration.exact_sum import ExactSum
from onnxq.calibration.range_methods import Seen
from onnxq.quant.qparams import Array


@dataclass(frozen=True)
class Wanted:
    """What is to be known of a tensor."""

    channels: int | None = None
    """The axis of channels whose average and largest magnitude are needed."""
    rows: int | None = None
    """The axis that a Softmax sums over."""
    distribution: bool = True
    """Whether more than the extremes is needed."""

    def joined(self, other: Wanted) -> Wanted:
        """What both need."""
        return Wanted(
            self.channels if other.channels is None else other.channels,
            self.rows if other.rows is None else other.rows,
            self.distribution or other.distribution,
        )


class TensorStatistics:
    """The values of one tensor."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.histogram = BitHistogram()
        self.extremes = ExactSum(2)
        """The smallest and the largest value of each sample."""
        self.row_top = np.float32(np.inf)
        """The least of the largest values of all rows."""
        self.magnitude: Array | None = None
        """The largest magnitude of each channel."""
        self.channel_sum: ExactSum | None = None
        """The average of each channel in each sample."""

    def add(self, values: Array) -> None:
        """Take in the values of one sample."""
        values = np.asarray(values, np.float32)
        if not values.size:
            return
        low, high = values.min(), values.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            raise FloatingPointError("NaN" if np.isnan(values).any() else "infinity")
        if self.wanted.distribution:
            self.histogram.add(values)
        else:
            self.histogram.low = np.minimum(self.histogram.low, low)
            self.histogram.high = np.maximum(self.histogram.high, high)
        self.extremes.add(np.array([low, high], np.float32))
        rows, channels = self.wanted.rows, self.wanted.channels
        if rows is not None and -values.ndim <= rows < values.ndim:
            self.row_top = np.minimum(self.row_top, values.max(axis=rows).min())
        if channels is not None and -values.ndim <= channels < values.ndim:
            self._add_channels(np.moveaxis(values, channels, 0).reshape(values.shape[channels], -1))

    def _add_channels(self, values: Array) -> None:
        largest = np.maximum(values.max(axis=1), -values.min(axis=1))
        mean = values.mean(axis=1, dtype=np.float64)
        if self.magnitude is None or self.channel_sum is None:
            self.magnitude, self.channel_sum = largest, ExactSum(largest.size)
        elif self.magnitude.size != largest.size:  # the axis has no fixed size
            return
        self.magnitude = np.maximum(self.magnitude, largest)
        self.channel_sum.add(mean)

    def merge(self, other: TensorStatistics) -> None:
        """Take in what another part of the data gave."""
        self.histogram.merge(other.histogram)
        self.extremes.merge(other.extremes)
        self.row_top = np.minimum(self.row_top, other.row_top)
        if other.magnitude is None or other.channel_sum is None:
            return
        if self.magnitude is None or self.channel_sum is None:
            self.magnitude, self.channel_sum = other.magnitude, other.channel_sum
        elif self.magnitude.size == other.magnitude.size:
            self.magnitude = np.maximum(self.magnitude, other.magnitude)
            self.channel_sum.merge(other.channel_sum)

    @property
    def seen(self) -> Seen:
        """What methods choose a range from."""
        low, high = self.extremes.mean()
        return Seen(self.histogram, (float(low), float(high)))

    @property
    def channel_mean(self) -> Array | None:
        """The average of each channel over all samples."""
        return None if self.channel_sum is None else self.channel_sum.mean()

    # -- files --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Plain arrays and numbers that `from_state` takes."""
        parts: dict[str, Any] = {
            **self.histogram.state(),
            "limbs": self.extremes.limbs,
            "samples": self.extremes.count,
            "row_top": self.row_top,
        }
        if self.magnitude is not None and self.channel_sum is not None:
            parts |= {"magnitude": self.magnitude, "channel_limbs": self.channel_sum.limbs}
            parts["channel_samples"] = self.channel_sum.count
        return parts

    @classmethod
    def from_state(cls, wanted: Wanted, state: Mapping[str, Any]) -> TensorStatistics:
        """The statistics whose `state` this was."""
        made = cls(wanted)
        made.histogram = BitHistogram.from_state(state)
        made.extremes = ExactSum(2, np.asarray(state["limbs"]), int(state["samples"]))
        made.row_top = np.float32(state["row_top"])
        if "magnitude" in state:
            made.magnitude = np.asarray(state["magnitude"], np.float32)
            limbs = np.asarray(state["channel_limbs"])
            count = int(state["channel_samples"])
            made.channel_sum = ExactSum(made.magnitude.size, limbs, count)
        return made


__all__ = ["TensorStatistics", "Wanted"]
