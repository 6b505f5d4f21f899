"""Results that show themselves: one line as `repr`, a table when printed or in a notebook.

`print` shows at most `MOST_LINES` lines, so that nobody scrolls; `rich.print` and notebooks show
more rows. rich is imported when something is shown, not before.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_LINES = 25
"""Lines of `str`."""
WIDTH = 100
"""Columns of `str`, and of a notebook's cell."""
_PRINTED_ROWS = 12
_SHOWN_ROWS = 60


class ShownResult:
    """What a result needs to be shown: a view of it with at most so many rows per table."""

    def _view(self, most: int) -> RenderableType:
        raise TypeError(f"{type(self).__name__} has no view")

    def __rich__(self) -> RenderableType:
        return self._view(_SHOWN_ROWS)

    def __str__(self) -> str:
        return as_text(self._view(_PRINTED_ROWS))

    def _repr_html_(self) -> str:
        """The tables in a notebook."""
        return as_html(self._view(_SHOWN_ROWS))


def as_text(view: RenderableType, most: int = MOST_LINES, width: int = WIDTH) -> str:
    """A view as plain text of at most `most` lines."""
    from onnxq.views.screen import Screen

    out = io.StringIO()
    Screen(file=out, width=width, color_system=None, legacy_windows=False).print(view)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    if len(lines) > most:
        lines = [*lines[: most - 1], f"... and {len(lines) - most + 1} more lines"]
    return "\n".join(lines)


def as_html(view: RenderableType, width: int = WIDTH) -> str:
    """A view as a piece of a page; its colours go with light and dark pages."""
    from onnxq.views.screen import Screen

    screen = Screen(file=io.StringIO(), width=width, record=True, legacy_windows=False)
    screen.print(view)
    code = '<pre style="line-height: normal; font-family: monospace">{code}</pre>'
    return screen.export_html(inline_styles=True, code_format=code)


__all__ = ["MOST_LINES", "ShownResult", "as_html", "as_text"]
