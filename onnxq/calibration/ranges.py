"""Ranges of tensors, each with where it comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxq.quant.qparams import Array


@dataclass(frozen=True)
class KnownRange:
    """The range of a tensor; one number for each end, or one per channel."""

    low: Array
    high: Array
    source: str
    """Where it comes from, in words: 'mse over 64 samples', 'the int8 quantizer of the source'."""

    @classmethod
    def of(cls, low: float | Array, high: float | Array, source: str) -> KnownRange:
        """From plain numbers."""
        return cls(np.asarray(low, np.float64), np.asarray(high, np.float64), source)


RangeTable = dict[str, KnownRange]
"""Ranges by the name of the tensor."""


def united(ranges: Iterable[KnownRange]) -> KnownRange:
    """The range that covers all of these."""
    found = list(ranges)
    if len(found) == 1:
        return found[0]
    low = min(float(each.low.min()) for each in found)
    high = max(float(each.high.max()) for each in found)
    sources = list(dict.fromkeys(each.source for each in found))
    return KnownRange.of(low, high, "; ".join(sources[:3]))


__all__ = ["KnownRange", "RangeTable", "united"]
