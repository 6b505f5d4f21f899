"""Warns of ranges that come from too few values.

Of n values that are alike, the next one lies beyond all of them with a probability of 1/n. Pictures
and sentences have thousands of values in every tensor; a network that reads a row of measurements
has few, and what its ranges cut off then costs more than all rounding. The samples that the cost is
measured on do not show it: the ranges come from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from onnxq.observing.statistics import Statistics

ENOUGH = 1000
"""Values of a tensor, at least."""


def few_values_note(statistics: Statistics, quantized: Iterable[str]) -> list[str]:
    """A note if there are ranges from few values; `quantized` are the tensors with ranges."""
    counts = {
        name: each.histogram.total
        for name in quantized
        if (each := statistics.tensors.get(name)) is not None and each.wanted.distribution
    }
    few = {name: count for name, count in counts.items() if 0 < count < ENOUGH}
    if not few:
        return []
    worst = min(few, key=few.__getitem__)
    more = len(few) - 1
    others = f", and {more} more range{'s' * (more > 1)} from few as well" if more else ""
    samples = math.ceil(statistics.samples * ENOUGH / few[worst])
    return [
        f"the range of '{worst}' comes from {few[worst]} values{others}: other data go beyond it, "
        f"and lose more than is measured here; give {samples} samples or more"
    ]


__all__ = ["ENOUGH", "few_values_note"]
