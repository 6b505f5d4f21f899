"""How much work a call does, counted instead of timed: lines of onnxq and passes executed.

Counts do not depend on the machine or its load, so a test can say that work grows linearly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
OWN = (str(ROOT / "onnxq"), str(ROOT / "passes"))


def lines(call: Callable[[], object]) -> int:
    """Number of lines of this project that `call` executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            return trace if frame.f_code.co_filename.startswith(OWN) else None
        if event == "line":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def assert_linear(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    """Work for four times the size is at most five times as much (quadratic: sixteen times).

    `prepare(size)` makes the input and returns the call to be counted.
    """
    small, large = (lines(prepare(n)) for n in (size, 4 * size))
    assert small > 0
    assert large <= 5 * small, f"{small} lines for {size}, {large} for {4 * size}"
