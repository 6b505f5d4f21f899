"""Quantize float networks beside onnxruntime's quantize_static: `python -m benchmarks.quantize`.

Both get the same 64 samples. SQNR is that of 16 others in onnxruntime's default session, against
the float model; latencies are interleaved; CPU seconds and memory are those of a process each, in
rounds of all ways, of which the median counts.
The table goes to docs/quantize-benchmark.md; exit code 1 on a missed target.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

from benchmarks import quantize_memory
from benchmarks.cifar10.rows import section
from benchmarks.float_networks import NETWORKS, Feed, data, write
from benchmarks.quantize_child import compile_sources, measured, store, theirs

SAMPLES = 64
TRIED = 16
TABLE = Path(__file__).parents[1] / "docs" / "quantize-benchmark.md"
WAYS = ("theirs", "min-max", "default", "mixed")
"""quantize_static, onnxq with plain extremes, onnxq as users run it, and with layers in float."""
MIXED_DB = {"mobilenetv2": 15.0}
"""The SQNR that the last way asks for, where a network needs float layers."""
ROUNDS = 3
"""How often the costs of a way are measured."""


def sqnr(model: Path, made: Path, feeds: list[Feed]) -> float:
    """In onnxruntime's default session."""
    from onnxq.running.sessions import shipped

    signal = noise = 0.0
    trusted, other = shipped(model), shipped(made)
    for feed in feeds:
        y, z = (session.run(feed)["y"].astype(np.float64) for session in (trusted, other))
        signal, noise = signal + np.square(y).sum(), noise + np.square(y - z).sum()
    return 10 * math.log10(signal / noise)


def network(name: str, folder: Path, samples: int, seconds: float) -> dict[str, dict[str, float]]:
    """All ways for one network."""
    import onnxq

    model = folder / f"{name}.onnx"
    write(name, model)
    ways = [way for way in WAYS if way != "mixed" or name in MIXED_DB]
    files = {way: folder / f"{name}.{way}.onnx" for way in ways}
    given = folder / f"{name}.npz"
    store(data(name, samples, seed=1), given)
    found = costs(ways, name, model, files, given)
    times = onnxq.bench({"float": model, **files}, data(name, 4, 3), seconds=seconds, profile=False)
    tried = data(name, TRIED, seed=2)
    for way, row in zip(ways, times.models[1:], strict=True):
        assert row.ratio is not None, row
        found[way] |= {"latency": row.ratio.median, "sqnr": sqnr(model, files[way], tried)}
    return found


def costs(
    ways: list[str], name: str, model: Path, files: dict[str, Path], given: Path
) -> dict[str, dict[str, float]]:
    """CPU seconds and memory of all ways, the median of the rounds; of the slow way of one."""
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for number in range(ROUNDS):
        for way in ways:
            if way != "mixed" or not number:
                goal = MIXED_DB[name] if way == "mixed" else None
                rounds[way].append(measured(way, model, files[way], given, goal))
    return {
        way: {key: statistics.median(each[key] for each in some) for key in some[0]}
        for way, some in rounds.items()
    }


def judge(found: dict[str, dict[str, dict[str, float]]]) -> list[tuple[str, str, str, bool]]:
    """What is asked for, what was measured, and whether that is enough."""
    rows: list[tuple[str, str, str, bool]] = []

    def least(what: str, value: float, limit: float, unit: str = "dB") -> None:
        rows.append((what, f">= {limit:g} {unit}", f"{value:.1f} {unit}", value >= limit))

    def most(what: str, value: float, limit: float) -> None:
        rows.append((what, f"<= {limit:g} x", f"{value:.2f} x", value <= limit))

    for name, ways in found.items():
        own, other = ways["default"], ways["theirs"]
        if name == "resnet18":
            least("ResNet-18, SQNR", own["sqnr"], 28.0)
            most("ResNet-18, latency / theirs", own["latency"] / other["latency"], 1.03)
        elif name == "mobilenetv2":
            least("MobileNetV2, SQNR", own["sqnr"], 12.0)
            mixed = ways["mixed"]
            least("MobileNetV2 with float layers, SQNR", mixed["sqnr"], 15.0)
            ratio = mixed["latency"] / other["latency"]
            most("MobileNetV2 with float layers, latency / theirs", ratio, 1.2)
        else:
            least("encoder with mask, SQNR", own["sqnr"], 28.0)
            most("encoder with mask, latency / float", own["latency"], 0.6)
        most(f"{name}, CPU of min-max / theirs", ways["min-max"]["cpu"] / other["cpu"], 0.4)
        most(f"{name}, CPU of the default / theirs", own["cpu"] / other["cpu"], 1.2)
    return rows


def table(
    found: dict[str, dict[str, dict[str, float]]], samples: int, judged: list[quantize_memory.Row]
) -> str:
    """As markdown."""
    lines = [
        "# onnxq quantize beside onnxruntime's quantize_static",
        "",
        f"{samples} samples for calibration, {TRIED} others for the SQNR, onnxruntime's default "
        "session with one thread. Written by `make bench-quantize`.",
        "",
        "| network | way | SQNR | latency / float | CPU s | peak MB |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, ways in found.items():
        for way, row in ways.items():
            shown = "quantize_static" if way == "theirs" else f"onnxq, {way}"
            lines.append(
                f"| {name} | {shown} | {row['sqnr']:.1f} dB | {row['latency']:.2f} | "
                f"{row['cpu']:.1f} | {row['peak']:.0f} |"
            )
    lines += ["", "| target | asked | measured | |", "|---|---|---|---|"]
    for what, asked, value, met in judged:
        lines.append(f"| {what} | {asked} | {value} | {'met' if met else '**missed**'} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantize", description=__doc__)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--seconds", type=float, default=20.0, help="for latencies, per network")
    parser.add_argument("networks", nargs="*", default=[*NETWORKS, "memory", "cifar10"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    compile_sources()
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name in (each for each in options.networks if each not in ("memory", "cifar10")):
            found[name] = network(name, Path(folder), options.samples, options.seconds)
        judged = judge(found)
        judged += quantize_memory.rows(Path(folder)) if "memory" in options.networks else []
        trained, met = "", True
        if "cifar10" in options.networks:
            trained, met = section(theirs, Path(folder), options.samples, options.seconds)
    text = table(found, options.samples, judged) + trained
    print(text)
    TABLE.write_text(text, encoding="utf-8")
    return 0 if met and all(met for *_, met in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
