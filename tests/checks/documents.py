"""Whether what a command prints with `--json` is what its schema says."""

from __future__ import annotations

import functools
from typing import Any

from jsonschema import Draft202012Validator

from onnxq.cli.schema import schema_of


@functools.cache
def validator(command: str) -> Draft202012Validator:
    """Of the documents of a command."""
    schema = schema_of(command)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def faults(command: str, document: Any) -> list[str]:
    """What in a document is not as documented: the place and why."""
    found = validator(command).iter_errors(document)
    return [f"{error.json_path}: {error.message[:300]}" for error in found]
