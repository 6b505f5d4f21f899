"""Scale and zero point from the observer; only the network learns.

    y  = (clamp(R(x/s) + z, lo, hi) - z) * s        R rounds half to even
    dx = dy if lo <= R(x/s) + z <= hi, else 0

s and z get no gradient.
"""

from __future__ import annotations

from typing import ClassVar

from torch_bridge.fake_quant.base import FakeQuantize


class Fixed(FakeQuantize):
    """Straight-through rounding to a grid that does not learn."""

    algorithm: ClassVar[str] = "fixed"
