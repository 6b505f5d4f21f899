"""One line for what many layers have in common.

Messages about different layers are alike if only names in quotes and numbers differ. On a screen
they become one, with a count and the first names; documents for programs keep each.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")

MOST_NAMES = 3
"""Names shown of those that share a line."""

_NAME = re.compile(r"(?<!\w)'([^']+)'(?!\w)")
_NUMBER = re.compile(r"(?<!\w)-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")


def pattern(text: str) -> str:
    """A message without the names and numbers of its layer."""
    return _NUMBER.sub("0", _NAME.sub("''", text))


def grouped(things: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Things with the same key together, in the order of the first of each."""
    found: dict[Hashable, list[T]] = defaultdict(list)
    for thing in things:
        found[key(thing)].append(thing)
    return list(found.values())


def merged(notes: Iterable[str]) -> list[str]:
    """Notes, with one line for those that are alike."""
    lines = []
    for same in grouped(notes, _key):
        first, count = same[0], len(same)
        names = list(dict.fromkeys(_NAME.findall(note)[0] for note in same if _NAME.search(note)))
        if len(names) > 1:
            lines.append(f"{first} ({count} alike: {first_names(names)})")
        elif count > 1 and len(set(same)) == 1:
            lines.append(f"{first} ({count} times)")
        else:
            lines += same
    return lines


def first_names(names: list[str]) -> str:
    """The first names of several, and whether there are more."""
    return ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")


def _key(note: str) -> str:
    # Without a name, numbers are all that a note has to tell.
    return pattern(note) if _NAME.search(note) else note


__all__ = ["MOST_NAMES", "first_names", "grouped", "merged", "pattern"]
