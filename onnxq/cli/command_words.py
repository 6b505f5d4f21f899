"""Commands of two words, such as 'calibrate merge'.

The first word is a command too. Its argument is a path, so a file that is really called 'merge' is
written './merge'.

Typer's options that set up shell completion work, but stay out of the help: one needs them once.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_COMPLETION = ("install_completion", "show_completion")


class CommandWords(TyperGroup):
    """Looks for a command of the first two words, then of the first."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name of the command, the command, and the rest of the words."""
        both = " ".join(args[:2])
        if len(args) > 1 and both in self.commands:
            args = [both, *args[2:]]
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> Any:
        """The options of the program."""
        found: list[Any] = [*super().get_params(ctx)]
        for option in found:
            if option.name in _COMPLETION:
                option.hidden = True
        return found


__all__ = ["CommandWords"]
