"""A tensor as several tools write it: scale, zero point and the ends of its range.

    {"scale": s, "zero_point": z, "min": s * (lo - z), "max": s * (hi - z)}

Each tool has names of its own for the four. Each holds one number, or a list with one number per
output channel of the layer that reads the weight. The ends repeat what scale and zero point say,
so they must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparams import QParams, Role
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
        """The row of `entry`, with one scale per channel where `channels` says so.

        `lists`: even a single number is a list.
        """
        lo, hi = side_rows.checked_code_range(entry, bits, signed)
        if channels or lists:
            scales, zeros = entry.numbers(self.scale), entry.integers(self.zero_point)
            lows, highs = entry.numbers(self.low), entry.numbers(self.high)
        else:
            scales, zeros = [entry.number(self.scale)], [entry.integer(self.zero_point)]
            lows, highs = [entry.number(self.low)], [entry.number(self.high)]
        if len({len(scales), len(zeros), len(lows), len(highs)}) != 1:
            keys = f"'{self.scale}', '{self.zero_point}', '{self.low}' and '{self.high}'"
            raise entry.error(f"the lengths of {keys} differ")
        if not channels and len(scales) != 1:
            raise entry.error(f"{len(scales)} scales, but it has no channels")
        for s, z, low, high in zip(scales, zeros, lows, highs, strict=True):
            side_rows.check_end(entry, self.low, low, s, lo - z)
            side_rows.check_end(entry, self.high, high, s, hi - z)
        axis = parts.channel_axis(name) if channels else None
        scale: Any = scales if channels else scales[0]
        zero: Any = zeros if channels else zeros[0]
        row = side_rows.make_row(entry, name, bits, signed, scale, zero, Role.ACTIVATION, axis)
        return side_rows.with_role(row, parts)
