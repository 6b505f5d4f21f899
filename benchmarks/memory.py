"""Rewriting two weights of a model whose weights lie in a data file, and the memory it takes."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

from benchmarks import with_onnxq


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
