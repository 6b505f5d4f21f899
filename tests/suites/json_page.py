"""The page of JSON documents, made from their schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from onnxq.cli.schema import schema_names, schema_of

_INTRO = """\
# JSON documents

With `--json` a command prints one document on standard output and nothing else. It is printed also
when the exit code is 1; with 2 it is an [error](#error), except that `doctor` prints what it found.
Numbers that JSON lacks (infinity, NaN) are null.

Within a major version keys are added, never renamed or removed, and they keep their types: let your
program ignore keys that it does not know. A document has no version of its own; the [table](#table)
and the [recipe](#recipe), which are files as well, have one. `onnxq schema` prints the
[JSON Schema](https://json-schema.org/) of the installed version, which knows every key and allows
no other:

```bash
onnxq schema                # the commands
onnxq schema convert        # what onnxq convert --json prints
```

This page is made from the schemas. Keys are always there unless they are called optional."""


def json_lines() -> Iterator[str]:
    """The page, line by line."""
    yield from _INTRO.splitlines()
    parts: dict[str, Any] = {}
    for command in schema_names():
        schema = schema_of(command)
        parts |= schema.pop("$defs", {})
        yield from ("", "## error" if command == "error" else f"## onnxq {command}")
        yield from _described(schema)
    yield from ("", "## Parts", "", "What several documents contain.")
    for name, part in sorted(parts.items()):
        yield from ("", f"### {name}")
        yield from _described(part)


def _described(schema: dict[str, Any]) -> Iterator[str]:
    """A schema in words, and its keys in a table."""
    yield from ("", schema["description"])
    if "properties" not in schema and "anyOf" not in schema:
        yield from ("", f"The document: {_kind(schema)}.")
    for form in schema.get("anyOf", []):
        if "properties" in form:
            yield from _described(form)
        else:
            yield from ("", f"{form['description']} {_kind(form)}.")
    if "properties" in schema:
        yield from ("", "| key | type | |", "|---|---|---|")
        for key, value in schema["properties"].items():
            optional = "" if key in schema["required"] else "Optional. "
            yield f"| `{key}` | {_kind(value)} | {optional}{value.get('description', '')} |"


def _kind(schema: dict[str, Any]) -> str:
    """The type of a value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    kinds = schema.get("type", "any")
    if kinds == "array":
        return f"list of {_kind(schema['items'])}" if schema.get("items") else "list"
    if kinds == "object":
        inner = schema.get("additionalProperties")
        return f"object of {_kind(inner)}" if inner else f"object of {_keys(schema)}"
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def _keys(schema: dict[str, Any]) -> str:
    return ", ".join(f"`{key}`" for key in schema["properties"])
