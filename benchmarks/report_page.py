"""The report on 2,000 operators in headless Chromium: `python -m benchmarks.report_page`.

Size of the page, seconds until something is painted and until everything is there, and the time of
a frame while the network is moved and zoomed. Exit code 1 on a missed target.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

import onnxq
from benchmarks.models import CHANNELS, SIZE, chain
from benchmarks.targets import Verdict
from benchmarks.with_onnxq import fold_and_quantize
from tests.browser import chromium

OPERATORS = 2001
MOST_MEGABYTES, MOST_SECONDS = 8.0, 3.0

PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
FRAMES = """async () => {
    const graph = onnxqNetwork, found = {};
    const frame = () => new Promise(requestAnimationFrame);
    async function time(name, move) {
        const times = [];
        for (let n = 0; n < 60; n++) {
            const before = performance.now();
            move(n);
            await frame();
            times.push(performance.now() - before);
        }
        found[name] = times;
    }
    document.getElementById("network").scrollIntoView();
    await new Promise((done) => setTimeout(done, 1000));
    await time("move all of it", () => graph.panBy({ x: 4, y: 2 }));
    const middle = { x: 300, y: 300 };
    await time("zoom in", (n) => graph.zoom({ level: 0.1 + 0.012 * n, renderedPosition: middle }));
    await time("move a part", () => graph.panBy({ x: -8, y: -8 }));
    return found;
}"""


def page(folder: Path, operators: int = OPERATORS) -> tuple[Path, float]:
    """A report on a quantized chain of so many operators, and the seconds it took to make."""
    network = chain(operators // 3 * 4)
    (folder / "float.onnx").write_bytes(network.data)
    (folder / "quantized.onnx").write_bytes(fold_and_quantize(network))
    onnx.checker.check_model(folder / "quantized.onnx")
    random = np.random.default_rng(0)
    data = random.normal(size=(4, CHANNELS, SIZE, SIZE)).astype(np.float32)
    started = time.perf_counter()
    made = onnxq.report(folder / "quantized.onnx", folder / "float.onnx", {"input": data})
    assert len(made.contents.layers) == operators // 3 * 3
    return made.save(folder / "report.html"), time.perf_counter() - started


def in_browser(path: Path, rounds: int) -> dict[str, Any]:
    """Seconds until the page is painted and complete, and frame times in milliseconds."""
    painted, complete = [], []
    frames: dict[str, list[float]] = {}
    with chromium.browser() as running:
        for _ in range(rounds):
            started = time.perf_counter()
            with chromium.opened(running, path) as opened:
                complete.append(time.perf_counter() - started)
                painted.append(opened.evaluate(PAINT))
                for name, times in opened.evaluate(FRAMES).items():
                    frames.setdefault(name, []).extend(times)
    return {"painted": painted, "complete": complete, "frames": frames}


def judge(size: int, found: dict[str, Any]) -> list[Verdict]:
    """The targets."""
    painted, megabytes = max(found["painted"]), size / 1e6
    return [
        Verdict("size", f"<= {MOST_MEGABYTES:g} MB", f"{megabytes:.2f} MB", megabytes <= 8),
        Verdict("first paint", f"<= {MOST_SECONDS:g} s", f"{painted:.2f} s", painted <= 3),
    ]


def main() -> int:
    """Measure and print; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--operators", type=int, default=OPERATORS)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    console, why = Console(), chromium.why_not()
    if why:
        console.print(f"not measured: {why}")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        path, seconds = page(Path(folder), asked.operators)
        size = path.stat().st_size
        found = in_browser(path, asked.rounds)
    verdicts = judge(size, found)
    table = Table("what", "target", "measured", "", title=f"Report on {asked.operators} operators")
    for verdict in verdicts:
        table.add_row(verdict.what, verdict.target, verdict.measured, "ok" if verdict.met else "NO")
    table.add_row("complete", "", f"{statistics.median(found['complete']):.2f} s", "")
    for name, times in found["frames"].items():
        slow = sorted(times)[int(0.95 * len(times))]
        table.add_row(
            f"frame: {name}", "", f"{statistics.median(times):.0f} ms, 95 %: {slow:.0f}", ""
        )
    table.add_row("making it", "", f"{seconds:.1f} s", "")
    console.print(table)
    return 0 if all(verdict.met for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
