r"""Activations that have another grid than before, and what that costs at each of them.

With Q the old quantizer and Q' the new one, over the values x that were seen:

    SQNR = 10 log10( \sum Q(x)^2 / \sum (Q(x) - Q'(x))^2 )     in dB

Weights are not listed: folding a batch norm changes their scales, but not what they compute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.observing.tensor_statistics import TensorStatistics
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role


@dataclass(frozen=True)
class RecastGrid:
    """One tensor whose grid changed."""

    tensor: str
    before: str
    """The old grid in words; '' if there was none."""
    after: str
    """The new grid; '' if there is none."""
    sqnr: float | None
    """The cost at this tensor in dB; None if no values were seen."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; infinities become None."""
        known = self.sqnr is not None and math.isfinite(self.sqnr)
        return vars(self) | {"sqnr": self.sqnr if known else None}


def recast_grids(
    before: QParamTable, after: QParamTable, seen: Mapping[str, TensorStatistics]
) -> tuple[RecastGrid, ...]:
    """The activations of both tables whose grids differ, the most expensive first.

    `seen` are the values that quantizers get, by the names of the tensors in the tables.
    """
    found = list(_changed(before, after, seen))
    found.sort(key=lambda each: math.inf if each.sqnr is None else each.sqnr)
    return tuple(found)


def _changed(
    before: QParamTable, after: QParamTable, seen: Mapping[str, TensorStatistics]
) -> Iterator[RecastGrid]:
    old, new = ({row.tensor: row for row in t.of(Role.ACTIVATION)} for t in (before, after))
    if not old:
        return
    for tensor in dict.fromkeys([*old, *new]):
        a, b = old.get(tensor), new.get(tensor)
        if a is not None and b is not None and _same_values(a, b):
            continue
        yield RecastGrid(tensor, _words(a), _words(b), _cost(a, b, seen.get(tensor)))


def _same_values(a: QParams, b: QParams) -> bool:
    """Whether both grids have the same levels, whatever their codes are called."""
    if a.same_grid(b):
        return True
    if not (a.is_per_tensor and b.is_per_tensor) or a.qtype.floating or b.qtype.floating:
        return False
    ends = [(row.lo - row.zero_point, row.hi - row.zero_point) for row in (a, b)]
    return bool(a.scale == b.scale) and ends[0] == ends[1]


def _words(row: QParams | None) -> str:
    if row is None:
        return ""
    low, high = (float(end.reshape(-1)[0]) for end in row.range)
    many = "" if row.scale.size == 1 else f" x{row.scale.size}"
    return f"{row.qtype.name} {low:.4g} to {high:.4g}{many}"


def _cost(a: QParams | None, b: QParams | None, seen: TensorStatistics | None) -> float | None:
    if seen is None or seen.is_empty:
        return None
    if any(row is not None and not row.is_per_tensor for row in (a, b)):
        return None
    lows, highs, counts = seen.histogram.bins()
    middle = ((lows + highs) / 2).astype(np.float32)
    old, new = (
        middle.astype(np.float64) if row is None else row.fake(middle).astype(np.float64)
        for row in (a, b)
    )
    noise = float(np.dot(counts, np.square(old - new)))
    signal = float(np.dot(counts, np.square(old)))
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


__all__ = ["RecastGrid", "recast_grids"]
