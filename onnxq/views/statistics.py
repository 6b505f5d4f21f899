"""What was seen of tensors, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from onnxq.views.screen import new_table, shown
from onnxq.views.tables import number

if TYPE_CHECKING:
    from onnxq.observing.statistics import Statistics


def statistics(found: Statistics, most: int | None = None) -> RenderableType:
    """The extremes of the first `most` tensors."""
    made = new_table("Statistics", "tensor", "lowest", "highest", right=("lowest", "highest"))
    for name, each in list(found.tensors.items())[:most]:
        ends = (each.histogram.low, each.histogram.high)
        made.add_row(shown(name), *("" if each.is_empty else number(float(end)) for end in ends))
    left = 0 if most is None else len(found.tensors) - most
    return Group(made, *([shown(f"and {left} more tensors", "dim")] if left > 0 else []))


__all__ = ["statistics"]
