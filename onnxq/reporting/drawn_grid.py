"""The grid of a quantizer as a drawing shows it: over real values, or over codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnxq.canonical.quantizers import Row
from onnxq.quant.qparams import QParams


@dataclass(frozen=True)
class DrawnGrid:
    """The grid of a quantizer, as a drawing shows it."""

    kind: str
    """Its type, such as int8."""
    codes: tuple[int, int]
    """The lowest and the highest code."""
    zero_point: int
    scale: tuple[float, float]
    """The smallest and the largest scale."""
    scales: int
    """How many scales there are: one, or one for each channel or block."""
    ends: tuple[float, float]
    """The range, in the unit of the drawing."""

    @classmethod
    def of(cls, row: Row, *, in_codes: bool) -> DrawnGrid | None:
        """The grid of a quantizer; None if its levels are not even."""
        if not isinstance(row, QParams) or row.qtype.floating:
            return None
        assert row.lo is not None and row.hi is not None
        low, high = row.range
        ends = (row.lo, row.hi) if in_codes else (float(low.min()), float(high.max()))
        scale = float(row.scale.min()), float(row.scale.max())
        zero = int(row.zero_point.reshape(-1)[0])
        return cls(row.qtype.name, (row.lo, row.hi), zero, scale, row.scale.size, ends)

    @property
    def step(self) -> float:
        """The distance of two levels in the unit of the drawing."""
        return (self.ends[1] - self.ends[0]) / (self.codes[1] - self.codes[0])

    def to_json(self) -> dict[str, Any]:
        """A JSON object, as the page draws it."""
        return {
            "kind": self.kind,
            "codes": list(self.codes),
            "zero": self.zero_point,
            "scale": [short(v) for v in self.scale],
            "scales": self.scales,
            "ends": [short(v) for v in self.ends],
        }


def short(value: float) -> float:
    """A number with the digits that a drawing needs."""
    return float(f"{value:.6g}")


__all__ = ["DrawnGrid", "short"]
