"""JSON read strictly: every key once, every value of its type, errors that name the place.

Python's own reader takes the last of two equal keys and lets a missing one surface far away.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from onnxq.errors import LoadError, near_matches


def parse(text: str, what: str, fix: str) -> Any:
    """The document in `text`; the error says that it is not `what`, and where."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        why = f"line {error.lineno} column {error.colno}: {error.msg}"
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError as error:  # a key twice, or a number with more digits than Python reads
        why = str(error)
    raise LoadError(f"not {what}: {why}", fix=fix)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key '{twice}' stands twice")
    return found


def dump(document: Any) -> str:
    """The text of a document, readable, with names as they are."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def peek(text: str) -> Any:
    """The document in `text`, None where there is none: for telling formats apart."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def damage(text: str) -> str | None:
    """Where an object or list in `text` ends too early or is no JSON; None: neither is the case."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        # What is cut off ends within a text, a word or a number, or where a token should stand.
        rest = text[error.pos :].strip()
        cut = error.msg.startswith("Unterminated") or re.fullmatch(r"[-+.\w]*", rest)
        at = f"line {error.lineno} column {error.colno}"
        return f"not complete JSON: {at}" if cut else f"not JSON: {at}: {error.msg}"
    except (ValueError, RecursionError):  # numbers too long, nesting too deep: not cut off
        return None
    return None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number that a double can hold."""
    if type(value) is int:
        return abs(value) < 2**1023
    return type(value) is float and math.isfinite(value)


@dataclass(frozen=True)
class Entry:
    """A JSON object, and where it stands in words."""

    value: dict[str, Any]
    where: str
    fix: str

    @classmethod
    def of(cls, value: Any, where: str, fix: str) -> Entry:
        """`value`, which must be an object."""
        if not isinstance(value, dict):
            raise LoadError(f"{where} is {_shown(value)}, not an object", fix=fix)
        return cls(value, where, fix)

    def error(self, why: str) -> LoadError:
        """The error for something wrong here."""
        return LoadError(f"{self.where}: {why}", fix=self.fix)

    def only(self, required: Collection[str], optional: Collection[str] = ()) -> None:
        """Refuse missing and unknown keys."""
        for key in required:
            if key not in self.value:
                raise self.error(f"key '{key}' is missing")
        known = {*required, *optional}
        for key in self.value:
            if key not in known:
                raise self.error(f"unknown key '{key}'; {near_matches(key, known)}")

    def number(self, key: str) -> float:
        """A finite number."""
        return self._number(key, self.value[key])

    def integer(self, key: str) -> int:
        """A whole number; 8.0 is one, as tools write it."""
        return self._integer(key, self.value[key])

    def numbers(self, key: str) -> list[float]:
        """A list of finite numbers."""
        return [self._number(f"{key}[{i}]", v) for i, v in enumerate(self._list(key))]

    def integers(self, key: str) -> list[int]:
        """A list of whole numbers."""
        return [self._integer(f"{key}[{i}]", v) for i, v in enumerate(self._list(key))]

    def choice(self, key: str, *choices: Any) -> Any:
        """One of `choices`, of the same type: the text "True" is not the value true."""
        value = self.value[key]
        if not any(type(value) is type(c) and value == c for c in choices):
            known = " or ".join(json.dumps(c) for c in choices)
            raise self.error(f"'{key}' is {_shown(value)}, not {known}")
        return value

    def text(self, key: str) -> str:
        """A text that is not empty."""
        value = self.value[key]
        if not isinstance(value, str) or not value:
            raise self.error(f"'{key}' is {_shown(value)}, not a text")
        return value

    def _list(self, key: str) -> list[Any]:
        value = self.value[key]
        if not isinstance(value, list) or not value:
            raise self.error(f"'{key}' is {_shown(value)}, not a list of numbers")
        return value

    def _number(self, key: str, value: Any) -> float:
        if not is_number(value):
            raise self.error(f"'{key}' is {_shown(value)}, not a finite number")
        return float(value)

    def _integer(self, key: str, value: Any) -> int:
        number = self._number(key, value)
        if not number.is_integer():
            raise self.error(f"'{key}' is {_shown(value)}, not a whole number")
        return int(number)


def _shown(value: Any) -> str:
    """A value as JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
