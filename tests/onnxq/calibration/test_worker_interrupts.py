"""Workers that are told to end, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = """
import os, signal, sys
from onnxq.calibration import worker_interrupts

worker_interrupts.watch()
if sys.argv[1] == "idle":
    os.kill(os.getpid(), signal.SIGTERM)
with worker_interrupts.task():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGTERM)  # by the parent, while the task saves
        os.write(1, b"saved")
        raise
os.write(1, b"went on")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes without a signal")
@pytest.mark.parametrize(("state", "told"), [("at work", "saved"), ("idle", "")])
def test_the_task_saves_and_the_worker_ends(state: str, told: str) -> None:
    words = [sys.executable, "-c", WORKER, state]
    root = Path(__file__).parents[3]
    done = subprocess.run(words, capture_output=True, text=True, cwd=root, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, told, "")
