"""Commands of two words, such as 'calibrate merge'.

The first word is a command too. Its argument is a path, so a file that is really called 'merge' is
written './merge'.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class CommandWords(TyperGroup):
    """Looks for a command of the first two words, then of the first."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name of the command, the command, and the rest of the words."""
        both = " ".join(args[:2])
        if len(args) > 1 and both in self.commands:
            args = [both, *args[2:]]
        return super().resolve_command(ctx, args)


__all__ = ["CommandWords"]
