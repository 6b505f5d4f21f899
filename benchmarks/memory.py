"""Models whose weights lie in a data file, and the memory it takes to work on them."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import with_onnxq
from benchmarks.child import why_it_failed


def peak_megabytes() -> float:
    """The most memory this process had at once, in MB of 10^6 bytes.

    Linux hands `ru_maxrss` of a parent on to the child it starts, so the figure of the process's
    own address space is taken where there is one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _graphsurgeon(source: Path, target: Path) -> None:
    """What graphsurgeon's own documentation leads to: everything is read, everything is written."""
    import onnx
    import onnx_graphsurgeon as gs

    graph = gs.import_onnx(onnx.load(source))
    for node in graph.nodes[:2]:
        weight = node.inputs[1]
        node.inputs[1] = gs.Constant(f"{weight.name}.scaled", weight.values * 0.5)
    graph.cleanup()
    onnx.save(gs.export_onnx(graph), target, save_as_external_data=True)


REWRITERS: dict[str, Callable[[Path, Path], None]] = {
    "onnxq": with_onnxq.rewrite_two_weights,
    "onnx-graphsurgeon": _graphsurgeon,
}


def anonymous(words: Sequence[str], model: Path, *, writes: bool = False) -> dict[str, Any]:
    """The most anonymous memory that `onnxq WORDS MODEL` had at once, in MB of 10^6 bytes."""
    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        output = ["-o", folder] if writes else []
        found = sampled("onnxq", *words, str(model), *output)
        written = sum(file.stat().st_size for file in Path(folder).iterdir())
    return found | ({"bytes_written": written} if "megabytes" in found else {})


def sampled(module: str, *words: str) -> dict[str, Any]:
    """The most anonymous memory of a module that runs in a process of its own, and its time.

    Mapped files are not in it: the system takes their pages back when it needs them. The figure is
    read every few milliseconds, since Linux keeps no peak of it.
    """
    if not Path("/proc/self/status").exists():
        return {"skipped": "this system does not tell anonymous memory"}
    with tempfile.TemporaryFile() as said:
        command = [sys.executable, "-W", "ignore", "-m", module, *words]
        start = time.monotonic()
        child = subprocess.Popen(command, stdout=said, stderr=said, cwd=_ROOT)
        most = 0
        while child.poll() is None:
            most = max(most, _anonymous_kilobytes(child.pid))
            time.sleep(0.005)
        if child.returncode:
            said.seek(0)
            text = said.read().decode(errors="replace")
            return {"failed": why_it_failed(text, child.returncode)}
    return {"megabytes": most * 1024 / 1e6, "elapsed": time.monotonic() - start}


_ROOT = Path(__file__).parent.parent


def _anonymous_kilobytes(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    return next((int(x.split()[1]) for x in lines if x.startswith("RssAnon:")), 0)
