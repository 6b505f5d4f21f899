"""Memory that was freed, given back to the system.

glibc keeps what was freed in its heaps, and sessions of onnxruntime leave holes there: 130 MB after
a calibration of ResNet-18, more with more samples. The next session would come on top of that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Give back what can be; nothing where the C library knows no way."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):  # Windows, or not glibc
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    made: Callable[[int], int] = found
    return made


__all__ = ["give_back"]
