"""One row of a quantization table for a logarithmic grid: a tensor and its largest magnitude.

Such a grid (`onnxq.canonical.fake_quantize_log`) has no scale and no zero point, so it is not a
`QParams`. Neighbouring values differ by a factor of 2^(1/16), and the largest magnitude c only
determines where the grid begins: numbers with the same R(16 * log2 c) give the same grid.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.errors import QParamsError
from onnxq.parsing.table_rows import readers_of, rejecting, role_of, row_entry
from onnxq.quant.qparams import GridRow, Reader, Role


@dataclass(frozen=True, slots=True)
class LogParams:
    """How one tensor is quantized logarithmically. Invalid values cannot be constructed."""

    tensor: str
    data_max: float
    """The largest magnitude; a float32."""
    role: Role = Role.ACTIVATION
    readers: tuple[Reader, ...] | None = None
    """The uses that are quantized; None: all."""

    # Attributes that rows of other grids have too: one grid for the whole tensor, without a source.
    is_per_tensor = True
    source = ""

    def __post_init__(self) -> None:
        """Round the magnitude to float32, which must give a positive finite number."""
        with np.errstate(over="ignore", under="ignore"):
            kept = float(np.float32(self.data_max))
        if not 0 < kept < math.inf:
            raise QParamsError(
                f"tensor '{self.tensor}': the largest magnitude {self.data_max} of its "
                "logarithmic grid is not a positive finite number",
                fix="recalibrate this tensor (an all-zero or NaN range gives such a number), or "
                "leave it unquantized",
            )
        object.__setattr__(self, "data_max", kept)

    def with_(self, **changes: Any) -> LogParams:
        """A copy with some fields changed, validated again."""
        return dataclasses.replace(self, **changes)

    def same_grid(self, other: GridRow) -> bool:
        """Whether both give the same value for every input."""
        return self.grid_key() == other.grid_key()

    def grid_key(self) -> Hashable:
        """Equal for the same grid, and for no grid with a scale."""
        return ("logarithmic", float(np.rint(16 * np.log2(self.data_max))))

    @property
    def grid_text(self) -> str:
        """The grid in words."""
        return f"logarithmic, largest magnitude {self.data_max:.6g}"

    def to_json(self) -> dict[str, Any]:
        """A JSON object; the number is the exact decimal form of the float32."""
        out: dict[str, Any] = {
            "tensor": self.tensor,
            "role": str(self.role),
            "data_max": self.data_max,
        }
        if self.readers is not None:
            out["readers"] = [list(reader) for reader in self.readers]
        return out

    @classmethod
    def from_json(cls, row: Any) -> LogParams:
        """Inverse of `to_json`."""
        with rejecting():
            entry = row_entry(row)
            entry.only(("tensor", "role", "data_max"), ("readers",))
            return cls(
                entry.text("tensor"), entry.number("data_max"), role_of(entry), readers_of(entry)
            )
