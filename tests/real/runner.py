"""Every real network through all steps, each step in a process of its own with a time limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

Result = dict[str, Any]


def run(name: str, limit: float) -> Result:
    """What became of one network."""
    with tempfile.TemporaryDirectory() as folder:
        found = _step("quantize", name, folder, limit)
        if found.keys() & {"skipped", "refused", "failed"}:
            return found
        return found | _step("load", name, folder, limit)


def _step(step: str, name: str, folder: str, limit: float) -> Result:
    command = [sys.executable, "-m", "tests.real.work", step, name, folder]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"{step}: not done after {limit:g} s"}
    if done.returncode < 0:
        return {"failed": f"{step}: ended by {signal.Signals(-done.returncode).name}"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": f"{step}: {last}"}
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result
