"""The words of onnxq, each defined once, in glossary.toml."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxq.errors import OptionError, near_matches


@dataclass(frozen=True)
class Word:
    """One word and what it means."""

    name: str
    text: str
    page: str = ""
    """The page of docs/ that tells more, with its heading."""
    also: tuple[str, ...] = ()
    """Other names of the same thing."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "word": self.name,
            "definition": self.text,
            "also": list(self.also),
            "page": self.page,
        }


@functools.cache
def words() -> tuple[Word, ...]:
    """Every word, in the order of the alphabet."""
    text = Path(__file__).with_name("glossary.toml").read_text(encoding="utf-8")
    return tuple(
        Word(
            name,
            " ".join(entry["text"].split()),
            entry.get("page", ""),
            tuple(entry.get("also", ())),
        )
        for name, entry in tomllib.loads(text).items()
    )


def look_up(word: str) -> Word | None:
    """The entry of a word, however it is spelled: capitals, hyphens, plural."""
    return _spellings().get(_plain(word))


def unknown_word(word: str) -> OptionError:
    """The error about something that is neither a file nor a word."""
    near = near_matches(word.lower(), [each.name for each in words()])
    return OptionError(
        f"'{word}' is neither a file nor a word of the glossary",
        fix=f"{near}\n  for a tensor: 'onnxq explain MODEL TENSOR'",
    )


@functools.cache
def _spellings() -> dict[str, Word]:
    return {_plain(name): each for each in words() for name in (each.name, *each.also)}


def _plain(word: str) -> str:
    """A word without what spelling may vary."""
    letters = "".join(c for c in word.casefold() if c not in " -_")
    return letters.removesuffix("s") if len(letters) > 3 else letters


__all__ = ["Word", "look_up", "unknown_word", "words"]
