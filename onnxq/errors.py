"""Errors that a user can act on.

Every error says what is wrong and where (`what`) and what to do next (`fix`); the command line
prints both and leaves the traceback to `--debug`. Faults of the program itself stay
`AssertionError` or `TypeError`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from onnxq.near_words import closest


class OnnxqError(Exception):
    """Base of all errors about something the user can change."""

    def __init__(self, what: str, *, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix

    def __reduce__(self) -> tuple[Any, ...]:
        """Let the error cross a process boundary, which keyword arguments alone would not."""
        return functools.partial(type(self), fix=self.fix), (self.what,), self.__dict__

    def __str__(self) -> str:
        return f"{self.what}\n  next: {self.fix}"


class LoadError(OnnxqError):
    """A file is missing, unreadable or not what its name promises."""


class SaveError(OnnxqError):
    """A file could not be written; what was there before is intact."""


class InvalidModelError(OnnxqError):
    """The graph breaks ONNX's own rules (cycle, dangling input, duplicate name)."""

    def __init__(
        self, what: str, *, fix: str = "the file is not a valid ONNX model: export it again"
    ) -> None:
        super().__init__(what, fix=fix)


class UnsupportedModelError(OnnxqError):
    """The model is valid, but contains something onnxq cannot rewrite."""


class QParamsError(OnnxqError):
    """Quantization parameters that no runtime could use (scale 0, zero point out of range)."""


class PassError(OnnxqError):
    """A pass met something it must neither guess nor skip."""


class OptionError(OnnxqError):
    """An unknown or ill-typed pass, option, backend or argument."""


class BackendError(OnnxqError):
    """The model cannot be written for the chosen backend."""


class VerifyError(OnnxqError):
    """Two models cannot be compared, or the comparison failed."""


def near_matches(word: str, known: Iterable[str]) -> str:
    """Suggest which of the `known` words the user may have meant."""
    words = sorted(known)
    if not words:
        return "there are none"
    near = closest(word, words)
    if near:
        quoted = [f"'{w}'" for w in near]
        others = ", ".join(quoted[:-1])
        return f"did you mean {others}{' or ' if others else ''}{quoted[-1]}?"
    ends = accumulate(len(w) + 2 for w in words)
    count = max(1, sum(end <= _MOST_LETTERS for end in ends))
    more = f" and {len(words) - count} more" if len(words) > count else ""
    return "choose from: " + ", ".join(words[:count])[:_MOST_LETTERS] + more


_MOST_LETTERS = 200
"""Most letters of the words listed if none is similar: the message fits three lines."""


def cannot_write(dialect: str, problems: Iterable[str], *, fix: str) -> PassError:
    """One error for everything that a dialect cannot express, each thing once."""
    each = list(dict.fromkeys(problems))
    many = "quantizers" if len(each) > 1 else "quantizer"
    return PassError(f"{len(each)} {many} cannot be written as {dialect}:{listed(each)}", fix=fix)


def listed(lines: Iterable[str]) -> str:
    """Indented lines after the first of a message: at most 20, then the number of others."""
    every = list(lines)
    more = [f"... and {len(every) - 20} more"] if len(every) > 20 else []
    return "".join(f"\n    {line}" for line in every[:20] + more)


__all__ = [
    *("BackendError", "InvalidModelError", "LoadError", "OnnxqError", "OptionError", "PassError"),
    *("QParamsError", "SaveError", "UnsupportedModelError", "VerifyError"),
    *("cannot_write", "listed", "near_matches"),
]
