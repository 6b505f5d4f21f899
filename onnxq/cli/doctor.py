"""The command that looks at this machine."""

from __future__ import annotations

import typer

from onnxq.cli.options import Json, show
from onnxq.cli.progress import progress_line
from onnxq.environment.checkup import doctor as examined
from onnxq.views.checkup import checkup


def doctor(as_json: Json = False) -> None:
    """Show versions, CPU features and what they mean for int8, extras, consumers and plug-ins."""
    with progress_line(as_json) as progress:
        progress("looking at this machine")
        found = examined()
    show(as_json, found.to_json, lambda: checkup(found))
    if not found.healthy:
        raise typer.Exit(2)


__all__ = ["doctor"]
