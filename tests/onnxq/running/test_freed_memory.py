"""What was freed is given back, whatever was allocated last."""

from __future__ import annotations

import subprocess
import sys

import pytest

from onnxq.running.freed_memory import _trim, give_back

CHILD = """
from pathlib import Path
import numpy as np
from onnxq.running.freed_memory import give_back

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("RssAnon:"))

kept = [np.ones(1 << 16, np.uint8) for _ in range(2000)]
del kept[:-1]
before = anonymous()
give_back()
print(before - anonymous())
"""


def test_it_can_be_called_anywhere() -> None:
    give_back()
    give_back()


@pytest.mark.skipif(
    _trim() is None or not sys.platform.startswith("linux"), reason="not the C library of GNU"
)
def test_most_of_it_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 100_000  # kB, of 131,000
