"""Speech is the same in every process: two runs can be compared."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.real import speech
from tests.real.task import Missing

_PRINT = """
import hashlib
from tests.real.speech import VOICES, spoken
print(hashlib.sha256(b"".join(spoken("Good morning", v).tobytes() for v in VOICES)).hexdigest())
"""


@pytest.mark.network
def test_every_process_speaks_alike() -> None:
    try:
        speech.spoken("one")
    except Missing as error:
        pytest.skip(str(error))
    runs = [
        subprocess.run(
            [sys.executable, "-c", _PRINT], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
