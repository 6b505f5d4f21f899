"""What is kept of one tensor's values over all samples: nothing of it grows with their number.

Every part is merged exactly: counts and exact sums are added, extremes are compared. So the
statistics of several parts of the data, merged in any order, are those of one run over all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.arrays.exact_sum import ExactSum
from onnxq.observing.bit_histogram import BitHistogram
from onnxq.observing.range_methods import Seen
from onnxq.quant.qparams import Array


@dataclass(frozen=True)
class Wanted:
    """What is to be known of a tensor."""

    channels: int | None = None
    """The axis of channels whose averages are needed."""
    rows: int | None = None
    """The axis that a Softmax sums over."""
    distribution: bool = True
    """Whether more than the extremes is needed."""
    spread: bool = False
    """Whether the extremes and the average square of each channel are needed as well."""

    def joined(self, other: Wanted) -> Wanted:
        """What both need."""
        return Wanted(
            self.channels if other.channels is None else other.channels,
            self.rows if other.rows is None else other.rows,
            self.distribution or other.distribution,
            self.spread or other.spread,
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
        self.channels: ChannelStatistics | None = None

    def add(self, values: Array) -> None:
        """Take in the values of one sample."""
        with np.errstate(over="ignore"):  # of float64: found as infinity below
            values = np.asarray(values, np.float32)
        if not values.size:
            return
        low, high = values.min(), values.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            raise FloatingPointError("NaN" if np.isnan(values).any() else "infinity")
        if self.wanted.distribution:
            self.histogram.add(values, (low, high))
        else:
            self.histogram.widen(low, high)
        self.extremes.add(np.array([low, high], np.float32))
        rows, channels = self.wanted.rows, self.wanted.channels
        if rows is not None and -values.ndim <= rows < values.ndim:
            self.row_top = np.minimum(self.row_top, values.max(axis=rows).min()) + np.float32(0)
        if channels is not None and -values.ndim <= channels < values.ndim:
            each = np.moveaxis(values, channels, 0).reshape(values.shape[channels], -1)
            if self.channels is None:
                self.channels = ChannelStatistics(len(each))
            self.channels.add(each, spread=self.wanted.spread)

    def merge(self, other: TensorStatistics) -> None:
        """Take in what another part of the data gave."""
        self.histogram.merge(other.histogram)
        self.extremes.merge(other.extremes)
        self.row_top = np.minimum(self.row_top, other.row_top)
        if other.channels is not None:
            if self.channels is None:
                self.channels = ChannelStatistics(other.channels.low.size)
            self.channels.merge(other.channels)

    @property
    def is_empty(self) -> bool:
        """Whether no value was seen: the tensor was empty, or its branch never ran."""
        return not self.extremes.count

    @property
    def seen(self) -> Seen:
        """What methods choose a range from."""
        low, high = self.extremes.mean()
        return Seen(self.histogram, (float(low), float(high)))

    # -- files --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Plain arrays and numbers that `from_state` takes."""
        parts: dict[str, Any] = {
            **self.histogram.state(),
            "limbs": self.extremes.limbs,
            "samples": self.extremes.count,
            "row_top": self.row_top,
        }
        if self.channels is not None:
            parts |= self.channels.state()
        return parts

    @classmethod
    def from_state(cls, wanted: Wanted, state: Mapping[str, Any]) -> TensorStatistics:
        """The statistics whose `state` this was."""
        made = cls(wanted)
        made.histogram = BitHistogram.from_state(state)
        made.extremes = ExactSum(2, np.asarray(state["limbs"]), int(state["samples"]))
        made.row_top = np.float32(state["row_top"])
        if "channel_low" in state:
            made.channels = ChannelStatistics.from_state(state)
        return made


@dataclass(frozen=True)
class Channels:
    """Extremes, average and average square of each channel, as plain numbers."""

    low: Array
    high: Array
    average: Array
    squares: Array
    values: int
    """The number of values of one channel."""

    def divided(self, factors: Array) -> Channels:
        """The same for the tensor divided by positive factors, one per channel."""
        each = factors.astype(np.float64)
        ends = self.low / each, self.high / each
        return Channels(*ends, self.average / each, self.squares / each**2, self.values)


class ChannelStatistics:
    """Average of each channel of a tensor, and its extremes and average square if needed.

    An axis whose size differs between samples does not count channels: nothing is kept of it, and
    the size is 0.
    """

    def __init__(self, size: int) -> None:
        self.low = np.full(size, np.inf, np.float32)
        self.high = np.full(size, -np.inf, np.float32)
        self.sum = ExactSum(size)
        """The average of each sample."""
        self.squares = ExactSum(size)
        """The average square of each sample."""
        self.values = 0
        """The number of values of one channel."""

    def add(self, values: Array, *, spread: bool = True) -> None:
        """Take in one sample, channels first; without `spread` only its averages."""
        if len(values) != self.low.size:
            self._forget()
            return
        self.sum.add(values.mean(axis=1, dtype=np.float64))
        self.values += values.shape[1]
        if not spread:
            return
        self._widen(values.min(axis=1), values.max(axis=1))
        squares = np.einsum("ij,ij->i", values, values, dtype=np.float64) / values.shape[1]
        self.squares.add(np.minimum(squares, np.finfo(np.float32).max))

    @property
    def numbers(self) -> Channels:
        """As plain numbers."""
        low, high = self.low.astype(np.float64), self.high.astype(np.float64)
        return Channels(low, high, self.sum.mean(), self.squares.mean(), self.values)

    def merge(self, other: ChannelStatistics) -> None:
        """Take in what another part of the data gave."""
        if other.low.size != self.low.size:
            self._forget()
            return
        self._widen(other.low, other.high)
        self.sum.merge(other.sum)
        self.squares.merge(other.squares)
        self.values += other.values

    def _forget(self) -> None:
        # Not the size that came first: the result must not depend on the order.
        self.low = self.high = np.zeros(0, np.float32)
        self.sum, self.squares, self.values = ExactSum(0), ExactSum(0), 0

    def _widen(self, low: Array, high: Array) -> None:
        self.low = np.minimum(self.low, low) + np.float32(0)  # 0 and -0 are one number
        self.high = np.maximum(self.high, high) + np.float32(0)

    def state(self) -> dict[str, Any]:
        """Plain arrays and numbers that `from_state` takes."""
        return {
            "channel_low": self.low,
            "channel_high": self.high,
            "channel_sum": self.sum.limbs,
            "channel_squares": self.squares.limbs,
            "channel_samples": self.sum.count,
            "channel_values": self.values,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ChannelStatistics:
        """The statistics whose `state` this was."""
        made = cls(np.asarray(state["channel_low"]).size)
        made.low = np.asarray(state["channel_low"], np.float32)
        made.high = np.asarray(state["channel_high"], np.float32)
        count = int(state["channel_samples"])
        made.sum = ExactSum(made.low.size, np.asarray(state["channel_sum"]), count)
        made.squares = ExactSum(made.low.size, np.asarray(state["channel_squares"]), count)
        made.values = int(state["channel_values"])
        if made.values < 0:
            raise ValueError("the number of values of a channel is negative")
        return made


__all__ = ["ChannelStatistics", "Channels", "TensorStatistics", "Wanted"]
