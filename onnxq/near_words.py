"""Finds the words a mistyped word may mean, quickly among any number of them.

Comparing two words costs the product of their lengths. So only words of common length are
compared, and of many only those that begin or end like the given one: a typing error seldom changes
both.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Sequence

MOST_WORDS = 500
"""Words compared for their beginning, and the same number for their end."""

MOST_LETTERS = 200


def closest(word: str, words: Sequence[str], count: int = 3, cutoff: float = 0.5) -> list[str]:
    """At most `count` of `words` that are similar to `word`, the best first."""
    if len(word) > MOST_LETTERS:
        return []
    near = [w for w in words if len(w) <= MOST_LETTERS]
    if len(near) > 2 * MOST_WORDS:
        ends = (w[::-1] for w in _around(word[::-1], sorted(w[::-1] for w in near)))
        near = list(dict.fromkeys([*_around(word, sorted(near)), *ends]))
    return difflib.get_close_matches(word, near, n=count, cutoff=cutoff)


def _around(word: str, ordered: list[str]) -> list[str]:
    """The words before and after the place of `word`."""
    at = bisect_left(ordered, word)
    return ordered[max(0, at - MOST_WORDS // 2) : at + MOST_WORDS // 2]
