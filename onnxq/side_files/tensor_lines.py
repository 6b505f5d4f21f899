"""Text files with one tensor per line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnxq.errors import LoadError
from onnxq.parsing.strict_json import Entry


def tensor_lines(
    text: str, pattern: re.Pattern[str], form: str
) -> Iterator[tuple[Entry, re.Match[str]]]:
    """The lines that are not blank, each with its place; group 1 is the tensor.

    `form` describes the pattern for messages.
    """
    fix = f"check that the file is complete: every line is {form}"
    seen: set[str] = set()
    # Not splitlines(): it also breaks at characters that a tensor name may contain.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        found = pattern.fullmatch(line)
        if found is None:
            raise LoadError(f"line {number} is not {form}", fix=fix)
        entry = Entry({}, f"line {number}, tensor '{found[1]}'", fix)
        if found[1] in seen:
            raise entry.error("duplicate line for this tensor")
        seen.add(found[1])
        yield entry, found


def matches(text: str, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """The lines that are not blank; none if some do not match, for recognising formats."""
    found = [pattern.fullmatch(line) for line in text.split("\n") if line.strip()]
    return [] if None in found else [match for match in found if match is not None]
