"""The record of `torch_bridge.prepare` as a table; training is known by its attributes only."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType

from onnxq.views.screen import new_table, shown


def prepared(found: Any, most: int) -> RenderableType:
    """Quantizers, what stays float and why, and notes: `most` of each."""
    title, *facts = found.facts()
    table = new_table(title, "quantizer", "tensor", "grid", "trained by")
    for row in found.rows[:most]:
        table.add_row(*map(shown, (row.module, row.tensor, row.what, row.how)))
    left = len(found.rows) - most
    rest = [f"and {left} more quantizers"] if left > 0 else []
    told = [shown(line.strip()) for line in rest + facts[:most]]
    return Group(table, *told)


__all__ = ["prepared"]
