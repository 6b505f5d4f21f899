"""The choices of a quantization as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType

from onnxq.views.screen import new_table, shown, shown_lines

if TYPE_CHECKING:
    from onnxq.calibration.recipe import Recipe


def recipe(found: Recipe, most: int) -> RenderableType:
    """The recipe in a table whose cells have at most `most` lines."""
    table = new_table(f"Recipe for {found.backend}", "", "")
    table.show_header = False
    table.columns[0].style = "bold"
    rules = found.settings.to_json()
    in_float = [str(selector) for selector, change in rules if change == "float"]
    others = [f"{selector}: {change}" for selector, change in rules if change != "float"]
    smooth = [f"{name}: {exponent:g}" for name, exponent in found.smooth.items()]
    for word, lines in (
        ("variant", [found.variant] if found.variant else []),
        ("ranges by", [found.method]),
        ("rounding", [found.rounding]),
        ("bias correction", ["yes" if found.bias_correction else "no"]),
        ("smoothed", smooth),
        ("stay float", in_float),
        ("rules", others),
        ("grids", [str(len(found.grids))] if found.grids else []),
    ):
        # Most cells have one line: the long ones share what is left of a screen.
        room = max(1, most // 4)
        rest = [f"and {len(lines) - room} more"] if len(lines) > room else []
        if lines:
            table.add_row(shown(word), shown_lines([*lines[:room], *rest]))
    return table


__all__ = ["recipe"]
