"""JSON read strictly: every key once, every value of its type, errors that name the place.

Python's own reader takes the last of two equal keys and reports a missing one far away. It also
reads documents of any size: here size, depth and the length of numbers have limits.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxq.errors import LoadError, near_matches
from onnxq.parsing import decimal_text

LARGEST = 256 * 2**20
"""Most characters of a document: encodings of the largest networks have half as many."""
DEEPEST = 32
"""Deepest nesting of lists and objects; tensors have fewer axes."""
WIDEST = 2**62
"""Whole numbers are smaller: sums with codes and offsets then fit 64 bits."""

_TEXTS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_PLAIN_TEXTS = re.compile(rb'"[^"]*+(?:"|\Z)')
_OTHERS = bytes(code for code in range(256) if code not in b'[]{}"')
_DIGITS = re.compile(r"[0-9]{4300,}")
_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class _Refused(ValueError):
    """JSON that is beyond a limit, or has a duplicate key."""


def parse(text: str, what: str, fix: str) -> Any:
    """The document in `text`; the error says that it is not `what`, and where."""
    try:
        return _loaded(text, _unique)
    except json.JSONDecodeError as error:
        why = f"line {error.lineno} column {error.colno}: {error.msg}"
    except _Refused as error:
        why = str(error)
    raise LoadError(f"not {what}: {why}", fix=fix)


def _loaded(text: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The document as Python reads it, after checking the limits."""
    if len(text) > LARGEST:
        raise _Refused(f"it has {len(text)} characters, at most {LARGEST} are allowed")
    if _depth(text) > DEEPEST:
        raise _Refused(f"it is nested too deeply: more than {DEEPEST} levels")
    try:
        document = json.loads(text, object_pairs_hook=pairs)
    except (json.JSONDecodeError, _Refused):
        raise
    except ValueError as error:  # a number with more digits than Python reads
        found = _DIGITS.search(text)
        if found is None:
            raise _Refused(str(error)) from error
        line = text.count("\n", 0, found.start()) + 1
        raise _Refused(f"line {line}: a number of {len(found[0])} digits") from error
    if _ESCAPED.search(text) and _SURROGATE.search(json.dumps(document, ensure_ascii=False)):
        raise _Refused("a string contains half a surrogate pair, which is not a character")
    return document


def _depth(text: str) -> int:
    """The depth of nested lists and objects, ignoring brackets in strings."""
    if "\\" in text:
        text = _TEXTS.sub("", text)
    # Without escapes only quotes and brackets count: all other characters are dropped first.
    brackets = _PLAIN_TEXTS.sub(b"", text.encode("utf-8", "surrogatepass").translate(None, _OTHERS))
    codes = np.frombuffer(brackets, np.uint8)
    steps = np.where((codes == ord("[")) | (codes == ord("{")), np.int8(1), np.int8(-1))
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _Refused(f"duplicate key '{twice}'")
    return found


def dump(document: Any) -> str:
    """The text of a document, readable, with names unescaped."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


@functools.lru_cache(maxsize=1)
def peek(text: str) -> dict[str, Any]:
    """The object in `text`, an empty one if there is none: for recognising formats.

    All formats look at the same text in turn, so the last one is kept until `forget`. It must not
    be changed.
    """
    try:
        document = _loaded(text)
    except ValueError:
        document = None
    return document if isinstance(document, dict) else {}


def forget() -> None:
    """Release the document that `peek` keeps."""
    peek.cache_clear()


def damage(text: str) -> str | None:
    """Why an object or list in `text` cannot be read; None: it can, or is something else."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        _loaded(text)
    except json.JSONDecodeError as error:
        # A cut-off document ends within a text, a word or a number, or before the next token.
        rest = text[error.pos :].strip()
        cut = error.msg.startswith("Unterminated") or re.fullmatch(r"[-+.\w]*", rest)
        at = f"line {error.lineno} column {error.colno}"
        return f"not complete JSON: {at}" if cut else f"not JSON: {at}: {error.msg}"
    except _Refused as error:
        return f"JSON that cannot be read: {error}"
    return None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number that fits a double."""
    if type(value) is int:
        return abs(value) < 2**1023
    return type(value) is float and math.isfinite(value)


@dataclass(frozen=True)
class Entry:
    """A JSON object and its place, in words."""

    value: dict[str, Any]
    where: str
    fix: str

    @classmethod
    def of(cls, value: Any, where: str, fix: str) -> Entry:
        """`value`, which must be an object."""
        if not isinstance(value, dict):
            raise LoadError(f"{where} is {_shown(value)}, not an object", fix=fix)
        return cls(value, where, fix)

    @classmethod
    def parse(cls, text: str, what: str, fix: str) -> Entry:
        """The object that a whole file is; the error says that it is not `what`."""
        return cls.of(parse(text, what, fix), "the file", fix)

    def error(self, why: str) -> LoadError:
        """The error for something wrong here."""
        return LoadError(f"{self.where}: {why}", fix=self.fix)

    def only(self, required: Collection[str], optional: Collection[str] = ()) -> None:
        """Reject missing and unknown keys."""
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
        """An integer; 8.0 is one, as tools write it."""
        return self._integer(key, self.value[key])

    def numbers(self, key: str) -> list[float]:
        """A list of finite numbers."""
        return [self._number(f"{key}[{i}]", v) for i, v in enumerate(self._list(key))]

    def integers(self, key: str) -> list[int]:
        """A list of integers."""
        return [self._integer(f"{key}[{i}]", v) for i, v in enumerate(self._list(key))]

    def array(self, key: str) -> npt.NDArray[np.float64]:
        """A finite number, or a rectangular array of them as nested lists."""
        try:
            flat = np.array(self.value[key], dtype=object)
        except ValueError:  # lists of different lengths
            flat = np.empty(0)
        if not flat.size or not all(is_number(v) for v in flat.reshape(-1)):
            raise self.error(
                f"'{key}' is {_shown(self.value[key])}, neither a finite number nor an array of "
                "finite numbers"
            )
        return flat.astype(np.float64)

    def whole_array(self, key: str) -> npt.NDArray[np.int64]:
        """The same for integers."""
        values = self.array(key)
        odd = values[(values != np.rint(values)) | (np.abs(values) >= WIDEST)]
        if odd.size:
            raise self.error(f"'{key}' holds {odd[0]:g}, which is not a 64-bit integer")
        return values.astype(np.int64)

    def choice(self, key: str, *choices: Any) -> Any:
        """One of `choices`, of the same type: the text "True" is not the value true."""
        value = self.value[key]
        if not any(type(value) is type(c) and value == c for c in choices):
            known = " or ".join(json.dumps(c) for c in choices)
            raise self.error(f"'{key}' is {_shown(value)}, not {known}")
        return value

    def text(self, key: str) -> str:
        """A non-empty string."""
        value = self.value[key]
        if not isinstance(value, str) or not value:
            raise self.error(f"'{key}' is {_shown(value)}, not a non-empty string")
        return value

    def decimal(self, what: str, text: str) -> float:
        """The number in a word of a text file; `what` names it in the message."""
        value = decimal_text.number(text)
        if value is None:
            raise self.error(f"{what} {_shown(text)} is not a finite decimal number")
        return value

    def whole_decimal(self, what: str, text: str) -> int:
        """The same for an integer."""
        value = decimal_text.integer(text)
        if value is None or abs(value) >= WIDEST:
            raise self.error(f"{what} {_shown(text)} is not a 64-bit decimal integer")
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
        if not self._number(key, value).is_integer():
            raise self.error(f"'{key}' is {_shown(value)}, not an integer")
        if abs(value) >= WIDEST:
            raise self.error(f"'{key}' is {_shown(value)}, which does not fit in 64 bits")
        return int(value)


def _shown(value: Any) -> str:
    """A value as JSON, shortened if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
