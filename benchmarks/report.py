"""The results as tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.targets import Verdict, seconds


def show(results: dict[str, Any], verdicts: list[Verdict], console: Console) -> None:
    """Print every measurement, then the targets."""
    console.print(_speed(results["speed"]), _reading(results["reading"]))
    console.print(_folding(results["folding"]))
    console.print(_memory(results["memory"]), _quantized(results["quantized"]))
    console.print(_targets(verdicts))


def _speed(speed: dict[str, Any]) -> Table:
    table = Table("tool", "nodes", "median", "all rounds", title="Fold BN and insert Q/DQ: CPU s")
    nodes, quarter = speed["nodes"], speed["nodes"] // 4
    rows = {"raw_protobuf": nodes, "onnxq": nodes, "onnxq_quarter": quarter}
    for name, count in rows.items():
        rounds = " ".join(f"{s:.2f}" for s in speed["seconds"][name])
        label = {"raw_protobuf": "hand-written loop"}.get(name, "onnxq")
        table.add_row(label, str(count), f"{speed['median'][name]:.2f}", rounds)
    return table


def _reading(reading: dict[str, Any]) -> Table:
    table = Table("nodes", "median", "all rounds", title="Read QDQ: CPU s")
    for name, count in (("onnxq", reading["nodes"]), ("onnxq_quarter", reading["nodes"] // 4)):
        rounds = " ".join(f"{s:.2f}" for s in reading["seconds"][name])
        table.add_row(str(count), f"{reading['median'][name]:.2f}", rounds)
    return table


def _folding(folding: dict[str, Any]) -> Table:
    title = f"Fold BN alone, {folding['nodes']} nodes: CPU time"
    table = Table("tool", "version", "CPU time", "nodes after", "BN left", title=title)
    for name, result in folding["tools"].items():
        after, left = result.get("nodes", "-"), result.get("batch_norms_left", "-")
        table.add_row(name, result.get("version", "-"), seconds(result), str(after), str(left))
    return table


def _memory(memory: dict[str, Any]) -> Table:
    title = f"Rewrite two weights of {memory['bytes'] / 2**30:.2f} GiB: peak memory"
    table = Table("tool", "peak", "of it after imports", title=title)
    for name, result in memory["tools"].items():
        if "megabytes" in result:
            peak, start = f"{result['megabytes']:.0f} MB", f"{result['after_imports']:.0f} MB"
        else:
            peak, start = seconds(result), "-"
        table.add_row(name, peak, start)
    return table


def _quantized(jobs: list[dict[str, Any]]) -> Table:
    table = Table("job", "data", "peak", "time", title="Large quantized weights: anonymous memory")
    for job in jobs:
        peak = f"{job['megabytes']:.0f} MB" if "megabytes" in job else seconds(job)
        time = f"{job['elapsed']:.0f} s" if "elapsed" in job else "-"
        table.add_row(job["job"], f"{job['bytes'] / 2**30:.2f} GiB", peak, time)
    return table


def _targets(verdicts: list[Verdict]) -> Table:
    table = Table("what", "target", "measured", "", title="Targets")
    marks = {True: "[green]met[/]", False: "[red]missed[/]", None: "[yellow]skipped[/]"}
    for verdict in verdicts:
        table.add_row(verdict.what, verdict.target, verdict.measured, marks[verdict.met])
    return table
