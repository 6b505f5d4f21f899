"""The network trained on CIFAR-10 in the benchmark of quantize.

All ways get the same 64 pictures of the training part. SQNR, accuracy and the share of pictures
that get the same class as from the float network are those of the 10,000 pictures to try, in
onnxruntime's default session.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.cifar10.network import trained
from benchmarks.cifar10.pictures import Unavailable, inputs, pictures

Feed = dict[str, np.ndarray]
TITLES = {
    "float": "float",
    "theirs": "quantize_static",
    "default": "onnxq, default",
    "integers": "onnxq, all layers in integers",
    "4 bits": "onnxq, weights of 4 bits",
}
BATCH = 500


@dataclass
class Row:
    """What one way gives."""

    accuracy: float
    agreement: float
    """The share of pictures with the class that the float network gives."""
    sqnr: float
    cpu: float
    latency: float = 1.0
    """As a multiple of the float network's."""


def section(
    theirs: Callable[[Path, Path, list[Feed]], None], folder: Path, samples: int, seconds: float
) -> tuple[str, bool]:
    """Tables of what was measured and of the targets, and whether all are met.

    Without the pictures it says why there are no rows, which misses no target.
    """
    try:
        model, (found, _) = trained(), pictures("train")
        tried, classes = pictures("test")
    except Unavailable as error:
        return f"\nNo rows for CIFAR-10: {error}.\n", True
    feeds = [{"x": inputs(each[None])} for each in found[:samples]]
    rows = measured(theirs, model, folder, feeds, (inputs(tried), classes), seconds)
    lines = [
        "",
        f"A small MobileNet trained on CIFAR-10: {samples} pictures for calibration, "
        f"{len(tried):,} others for the rest.",
        "",
        "| CIFAR-10 | SQNR | accuracy | same class as float | latency / float | CPU s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for way, row in rows.items():
        lines.append(
            f"| {TITLES[way]} | {row.sqnr:.1f} dB | {row.accuracy:.2%} | {row.agreement:.2%} | "
            f"{row.latency:.2f} | {row.cpu:.1f} |"
        )
    lines += ["", "| target | asked | measured | |", "|---|---|---|---|"]
    for what, asked, value, met in judge(rows):
        lines.append(f"| {what} | {asked} | {value} | {'met' if met else '**missed**'} |")
    return "\n".join(lines) + "\n", all(met for *_, met in judge(rows))


def judge(rows: dict[str, Row]) -> list[tuple[str, str, str, bool]]:
    """What is asked for, what was measured, and whether that is enough."""
    own, other = rows["integers"], rows["theirs"]
    more, kept = own.sqnr - other.sqnr, rows["4 bits"].accuracy / rows["float"].accuracy
    return [
        ("CIFAR-10 in integers, SQNR above theirs", ">= 3 dB", f"{more:.2f} dB", more >= 3),
        (
            "CIFAR-10 in integers, same class as float",
            f">= theirs, {other.agreement:.2%}",
            f"{own.agreement:.2%}",
            own.agreement >= other.agreement,
        ),
        ("CIFAR-10, 4 bits, accuracy / float", ">= 85 %", f"{kept:.1%}", kept >= 0.85),
    ]


def measured(
    theirs: Callable[[Path, Path, list[Feed]], None],
    model: Path,
    folder: Path,
    feeds: list[Feed],
    tried: tuple[np.ndarray, np.ndarray],
    seconds: float,
) -> dict[str, Row]:
    """All ways, by name; the float network first."""
    import onnxq

    # A rule about a layer quantizes it, even one that is as fast in float.
    eight, four = ({"settings": [["*", {"weight_bits": bits}]]} for bits in (8, 4))
    files = {"float": model} | {
        way: folder / f"cifar10.{way}.onnx" for way in TITLES if way != "float"
    }
    costs = {"float": 0.0}
    ways = {"theirs": {}, "default": {}, "integers": eight, "4 bits": four}
    for way, options in ways.items():
        began = time.process_time()
        if way == "theirs":
            theirs(model, files[way], feeds)
        else:
            made = onnxq.quantize(model, "onnxruntime", feeds, verify=False, **options)
            onnxq.save(made.model, files[way])
        costs[way] = time.process_time() - began
    trusted = outputs(model, tried[0])
    rows = {
        way: compared(trusted, outputs(file, tried[0]), tried[1], costs[way])
        for way, file in files.items()
    }
    times = onnxq.bench(files, feeds[:4], seconds=seconds, profile=False)
    for row, timed in zip(list(rows.values())[1:], times.models[1:], strict=True):
        assert timed.ratio is not None, timed
        row.latency = timed.ratio.median
    return rows


def outputs(model: Path, tried: np.ndarray) -> np.ndarray:
    """Of all pictures, as float64."""
    from onnxq.running.sessions import shipped

    made = shipped(model)
    batches = (made.run({"x": tried[at : at + BATCH]})["y"] for at in range(0, len(tried), BATCH))
    return np.concatenate(list(batches)).astype(np.float64)


def compared(trusted: np.ndarray, other: np.ndarray, classes: np.ndarray, cpu: float) -> Row:
    """The outputs of a network beside those of the float one."""
    noise = np.square(trusted - other).sum()
    said = other.argmax(axis=1)
    return Row(
        float(np.mean(said == classes)),
        float(np.mean(said == trusted.argmax(axis=1))),
        10 * math.log10(np.square(trusted).sum() / noise) if noise else math.inf,
        cpu,
    )
