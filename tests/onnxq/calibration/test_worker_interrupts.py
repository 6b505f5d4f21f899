"""Workers that are told to end, in processes of their own."""

from __future__ import annotations

import os
import signal
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


PARENT = """
import multiprocessing, os, sys, time
from onnxq.calibration import worker_interrupts

def work(ready):
    worker_interrupts.watch()
    with worker_interrupts.task():
        try:
            ready.put(os.getpid())
            time.sleep(60)
        except KeyboardInterrupt:
            os.write(1, b"saved")
            raise

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    context.Process(target=work, args=(ready,)).start()
    print(ready.get(), flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes without a signal")
def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT, encoding="utf-8")
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    ) as parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        assert parent.stdout.read() == "saved"  # the end of the stream: the worker is gone
