"""The forms of the documents that `--json` prints, as JSON Schema (draft 2020-12).

`schemas/` has one file for each command, one for errors, and `parts.json` with what several of them
contain. A part is referred to as `#/$defs/NAME`; the schema of a command gets the parts it needs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Annotated, Any

import typer

from onnxq.cli.listings import listing
from onnxq.errors import OptionError, near_matches
from onnxq.views import screen

_PARTS = "parts"
_REFERENCE = "#/$defs/"


def schema_names() -> list[str]:
    """The commands that print documents, and 'error'."""
    stems = sorted(
        f.name.removesuffix(".json") for f in files(__package__).joinpath("schemas").iterdir()
    )
    return [stem.replace("-", " ") for stem in stems if stem != _PARTS]


def schema_of(command: str) -> dict[str, Any]:
    """The schema of the documents of a command, complete in itself."""
    if command not in schema_names():
        raise OptionError(
            f"'{command}' prints no document", fix=near_matches(command, schema_names())
        )
    schema, parts = _read(command.replace(" ", "-")), _read(_PARTS)
    needed: dict[str, Any] = {}
    left = list(_references(schema))
    while left:
        name = left.pop()
        if name not in needed:
            needed[name] = parts[name]
            left += _references(parts[name])
    title = "onnxq, an error" if command == "error" else f"onnxq {command} --json"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return head | schema | ({"$defs": dict(sorted(needed.items()))} if needed else {})


def _read(stem: str) -> dict[str, Any]:
    text = files(__package__).joinpath("schemas", f"{stem}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def _references(value: Any) -> Iterator[str]:
    """The names of the parts that a schema mentions."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].removeprefix(_REFERENCE)
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _references(each)


def schema(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="A command, or 'error'.", show_default=False),
    ] = None,
) -> None:
    """Print the JSON Schema of what a command prints with --json, or list the commands."""
    if command:
        sys.stdout.write(json.dumps(schema_of(" ".join(command)), indent=1) + "\n")
    else:
        known = {name: schema_of(name)["description"] for name in schema_names()}
        screen.console().print(listing(known, "schema"))


__all__ = ["schema", "schema_names", "schema_of"]
