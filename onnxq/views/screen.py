"""Text for people, which cannot act on the terminal.

Names come from files, and files come from anywhere. Every character that Python calls not
printable (control characters, bidirectional overrides, line separators, lone surrogates) is shown
as its escape, as `repr` shows it, and no text is read as markup. Documents for programs do not
come this way: JSON has escapes of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

_OWN_BREAK = re.compile(r"\n(?= )")
"""Messages indent their further lines, so a break without an indent is part of a name."""


def escaped(text: str) -> str:
    """`text` on one line, with escapes for unprintable characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def message(text: str) -> str:
    """A message that may have indented lines after its first."""
    return "\n".join(map(escaped, _OWN_BREAK.split(text)))


def shown(text: str, style: str = "") -> Text:
    """A message that is ready to be printed."""
    return Text(message(text), style)


def shown_lines(lines: Iterable[str], style: str = "") -> Text:
    """Several texts, each on a line of its own."""
    return Text("\n".join(map(escaped, lines)), style)


def new_table(title: str, *columns: str, right: Collection[str] = ()) -> Table:
    """An empty table that folds long cells; the columns in `right` are aligned to the right."""
    table = Table(title=shown(title, "bold"), title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


class Screen(Console):
    """A console on which all text is shown as it is, and never acts."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Show a string as a message, not as markup."""
        plain = {"markup": False, "emoji": False, "highlight": False}
        return super().render_str(message(text), **how | plain)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Escape whatever reaches the screen, even text that did not pass through `shown`."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                text = "\n".join(map(escaped, segment.text.split("\n")))
                yield Segment(text, segment.style)


def console(stderr: bool = False) -> Screen:
    """A console that does not cut names when no terminal specifies a width."""
    made = Screen(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = max(made.width, 120)
    return made
