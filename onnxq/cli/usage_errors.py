"""Errors of usage in the words of all other errors: what is wrong, and the next step.

The library that reads the command line words them for programmers, and knows no next step.
"""

from __future__ import annotations

import re
from typing import Any

_WORDS = (
    (r"Input should be a valid integer.*", "it takes a whole number"),
    (r"Input should be a valid number.*", "it takes a number"),
    (r"Input should be greater than or equal to (\S+)", r"it takes \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"it takes \1 or less"),
    (r"Input should be greater than (\S+)", r"it takes more than \1"),
    (r"Input should be less than (\S+)", r"it takes less than \1"),
    (r"Value error, ", ""),
)


def in_words(error: Any) -> tuple[str, str]:
    """What is wrong, and the next step."""
    what = str(error.format_message())
    for theirs, ours in _WORDS:
        what = re.sub(theirs, ours, what)
    command = "onnxq" if error.ctx is None else error.ctx.command_path
    fix = f"see '{command} --help'"
    if "'--keep-float'" in what and "whole number" in what:
        fix = 'give the number of layers; those named in --settings stay float: [["NAME", "float"]]'
    return what.rstrip("."), fix


__all__ = ["in_words"]
