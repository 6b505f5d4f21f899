"""What the Tab key offers for names: backends, variants, formats and passes."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from onnxq import discovery
from onnxq.backend import Backend, backends
from onnxq.side_files.side_file import formats


def backend_names(incomplete: str) -> list[str]:
    """Backends that begin so."""
    return _beginning(incomplete, backends())


def variant_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Variants of the backend that was named before; of all if there is none."""
    named = backends().get(ctx.params.get("backend") or "")
    chosen = [named] if isinstance(named, Backend) else backends().values()
    found = {name for each in chosen if isinstance(each, Backend) for name in each.variants}
    return _beginning(incomplete, sorted(found))


def format_names(incomplete: str) -> list[str]:
    """Side-file formats that begin so."""
    return _beginning(incomplete, formats())


def pass_names(incomplete: str) -> list[str]:
    """Passes that begin so; in a list of passes the last one is completed."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _beginning(last, discovery.passes())]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


__all__ = ["backend_names", "format_names", "pass_names", "variant_names"]
