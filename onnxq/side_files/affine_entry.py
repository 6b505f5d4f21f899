"""A tensor as several tools write it: scale, zero point and the ends of its range.

    {"scale": s, "zero_point": z, "min": s * (lo - z), "max": s * (hi - z)}

Each tool has its own names for the four. Each value is one number, or a list with one number per
output channel of the layer that the weight belongs to. The ends follow from scale and zero point,
so they must agree with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparams import QParams
from onnxq.side_files import rows as side_rows


@dataclass(frozen=True)
class AffineEntry:
    """The keys that a tool has for scale, zero point, lowest and highest value."""

    scale: str
    zero_point: str
    low: str
    high: str

    def values(self, row: QParams) -> dict[str, Any]:
        """The values of the keys for `row`; scales are exact."""
        low, high = row.range
        columns = (row.scale.astype(np.float64), row.zero_point, low, high)
        keys = (self.scale, self.zero_point, self.low, self.high)
        return {key: column.tolist() for key, column in zip(keys, columns, strict=True)}

    def read(
        self,
        entry: Entry,
        name: str,
        bits: int,
        signed: bool,
        parts: TensorParts,
        *,
        channels: bool,
        lists: bool = False,
    ) -> QParams:
        """The row of `entry`, with one scale per channel if `channels` is set.

        With `lists`, even a single number is in a list.
        """
        lo, hi = side_rows.checked_code_range(entry, bits, signed)
        lists = lists or channels
        scales, lows, highs = (
            entry.numbers(key) if lists else [entry.number(key)]
            for key in (self.scale, self.low, self.high)
        )
        zeros = entry.integers(self.zero_point) if lists else [entry.integer(self.zero_point)]
        if len({len(scales), len(zeros), len(lows), len(highs)}) != 1:
            keys = f"'{self.scale}', '{self.zero_point}', '{self.low}' and '{self.high}'"
            raise entry.error(f"the lengths of {keys} differ")
        if not channels and len(scales) != 1:
            raise entry.error(f"{len(scales)} scales, but it has no channels")
        for s, z, low, high in zip(scales, zeros, lows, highs, strict=True):
            side_rows.check_end(entry, self.low, low, s, lo - z)
            side_rows.check_end(entry, self.high, high, s, hi - z)
        axis = parts.channel_axis(name) if channels else None
        row = side_rows.make_row(entry, name, bits, signed, scales, zeros, axis=axis)
        return side_rows.with_role(row, parts)
