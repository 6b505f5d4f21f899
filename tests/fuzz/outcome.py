"""How an attack may end. Anything else is a finding: an AssertionError that tells the seed."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """A broken file is refused, or what onnxq makes of it is right."""

    REFUSED = "refused"  # a clean OnnxqError
    EQUAL = "equal"  # a right result
