"""Run all benchmarks: `python -m benchmarks [--quick] [--json]`; exit code 1 on a missed target."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import measurements
from benchmarks.child import LIMIT_SECONDS
from benchmarks.models import LARGE_WEIGHTS
from benchmarks.report import show
from benchmarks.targets import judge

RESULTS = Path(__file__).parent / "results" / "results.json"


def main() -> int:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller models, fewer rounds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--nodes", type=int, help="nodes of the rewritten chain (20000)")
    parser.add_argument("--peer-nodes", type=int, help="nodes of the chain for other tools (5000)")
    parser.add_argument("--repeats", type=int, help="measured rounds (15)")
    options = parser.parse_args()
    nodes = options.nodes or (4000 if options.quick else 20000)
    peer_nodes = options.peer_nodes or (1000 if options.quick else 5000)
    repeats = options.repeats or (3 if options.quick else 15)
    progress = Console(stderr=True)

    results = {"machine": measurements.machine()}
    with progress.status("fold BN and insert Q/DQ") as status:
        results["speed"] = measurements.speed(nodes, repeats)
        status.update("read Q/DQ")
        results["reading"] = measurements.reading(nodes, repeats)
        status.update("fold BN with every tool")
        results["folding"] = measurements.folding(peer_nodes, LIMIT_SECONDS)
        status.update("rewrite two large weights")
        results["memory"] = measurements.memory(8 if options.quick else LARGE_WEIGHTS)
        status.update("describe and convert large quantized weights")
        sizes = {"side": 4096, "weights": 4} if options.quick else {}
        results["quantized"] = measurements.quantized(**sizes)
    verdicts = judge(results)
    results["targets"] = [verdict.to_json() for verdict in verdicts]

    text = json.dumps(results, indent=1)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    if options.json:
        print(text)
    else:
        show(results, verdicts, Console())
        progress.print(f"numbers: {RESULTS}")
    return 1 if any(verdict.met is False for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
