"""One measurement in a process of its own: `python -m benchmarks.child KIND NAME MODEL`.

A slow tool can be stopped there, and its memory is its own. The result is one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 100


def measure(kind: str, name: str, model: Path, limit: int = LIMIT_SECONDS) -> dict[str, Any]:
    """Run a child; `{"over": limit}` where it was stopped, `{"failed": why}` where it broke."""
    command = [sys.executable, "-m", "benchmarks.child", kind, name, str(model), str(limit)]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode == -_CPU_SIGNAL:
        return {"over": limit}
    if done.returncode:
        return {"failed": why_it_failed(done.stderr, done.returncode)}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def why_it_failed(said: str, code: int) -> str:
    """One line of what a process said before it failed: its error, or the last one."""
    lines = said.strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    return next(iter([*errors[-1:], *lines[-1:]]), f"exit code {code}")


_CPU_SIGNAL = 24
"""SIGXCPU, by number: Windows has no such signal and no such limit."""


def _limit_cpu(seconds: int) -> None:
    """Let the system end this process after `seconds` more of CPU time."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + seconds, most))


def _fold(name: str, model: Path, limit: int) -> dict[str, Any]:
    import onnx

    from benchmarks.clock import cpu_seconds
    from benchmarks.models import chain
    from benchmarks.peers import PEERS

    job = PEERS[name].prepare()
    job(chain(40).data)  # whatever a tool loads at its first call is not timed
    data = model.read_bytes()
    made: list[bytes] = []
    _limit_cpu(limit)
    seconds = cpu_seconds(lambda: made.append(job(data)))
    ops = Counter(node.op_type for node in onnx.load_model_from_string(made[0]).graph.node)
    left = ops["BatchNormalization"]
    return {"seconds": seconds, "nodes": sum(ops.values()), "batch_norms_left": left}


def _memory(name: str, model: Path, limit: int) -> dict[str, Any]:
    from benchmarks.memory import REWRITERS, peak_megabytes

    before = peak_megabytes()
    _limit_cpu(limit)
    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        target = Path(folder) / "rewritten.onnx"
        REWRITERS[name](model, target)
        written = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {"megabytes": peak_megabytes(), "after_imports": before, "bytes_written": written}


if __name__ == "__main__":
    kind, name, model, limit = sys.argv[1:]
    run = {"fold": _fold, "memory": _memory}[kind]
    print(json.dumps(run(name, Path(model), int(limit))))
