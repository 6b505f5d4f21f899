"""All training algorithms on one small task: `python -m benchmarks.algorithms`.

Scikit-learn's digits (1,437 images of 8x8 pixels to train, 360 to test) and a network of three
convolutions with 8 channels. Each quantized network starts from the float one, is calibrated with
256 images and trains for six epochs; then it is deployed, and the file runs in onnxruntime. Weights
have a scale per channel, first and last layers 8 bits. The tables go to docs/algorithms.md, between
its marks; exit code 1 on a missed target.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import torch_bridge as tb
from onnxq.backend import Backend, find_backend
from onnxq.running.sessions import reference
from torch_bridge.demo import TESTED, Data, digits, float_network, recognised, train

PAGE = Path(__file__).parents[1] / "docs" / "algorithms.md"
MARKS = "<!-- measured -->", "<!-- end of measured -->"
EPOCHS, RATE = 6, 2e-3
BITS = ((8, 8), (4, 4), (2, 4))
LIMITS = {(8, 8): 1.0, (4, 4): 3.0, (2, 4): 8.0}
"""Points below float that an algorithm may lose; with 2 bits only if the batch norm is apart."""

How = dict[str, Any]


class Algorithm(NamedTuple):
    """How weights and activations train."""

    weight: How
    activation: How


_SYMMETRIC = {"symmetric": True}
ALGORITHMS: dict[str, Algorithm] = {
    "fixed": Algorithm({"algorithm": "fixed"}, {"algorithm": "fixed"}),
    "lsq": Algorithm({"algorithm": "lsq"}, {"algorithm": "lsq"}),
    "lsq-plus": Algorithm({"algorithm": "lsq"}, {"algorithm": "lsq-plus"}),
    "dorefa": Algorithm({"algorithm": "dorefa"}, {"algorithm": "fixed"}),
    "pact": Algorithm({"algorithm": "dorefa"}, {"algorithm": "pact"}),
    "dsq": Algorithm({"algorithm": "dsq"}, {"algorithm": "dsq"}),
    "tqt": Algorithm({"algorithm": "tqt"}, {"algorithm": "tqt", **_SYMMETRIC}),
    "qil": Algorithm({"algorithm": "qil"}, {"algorithm": "qil", **_SYMMETRIC}),
    "apot": Algorithm({"algorithm": "apot"}, {"algorithm": "apot", **_SYMMETRIC}),
}
"""As in the papers: DoReFa is about weights, PACT and LSQ+ about activations."""
PER_TENSOR = ("fixed", "lsq", "dorefa")
"""The algorithms tried with one scale per weight, too."""


@dataclass(frozen=True)
class Setting:
    """One cell of a table."""

    algorithm: str
    bits: tuple[int, int]
    folded: bool
    per_channel: bool = True


class Result(NamedTuple):
    """Test images recognised by one trained network."""

    calibrated: int
    """Before training."""
    trained: int
    deployed: int
    """By the file, in onnxruntime."""


def target(folded: bool) -> Backend:
    """The setting of papers, with batch norms apart or folded as in deployment."""
    academic = find_backend("academic")
    return replace(academic, placement=replace(academic.placement, fuse=folded))


def prepared(setting: Setting, base: nn.Module, data: Data) -> nn.Module:
    """The network with its quantizers, calibrated."""
    how, (w, a) = ALGORITHMS[setting.algorithm], setting.bits
    q = tb.prepare(
        base,
        target(setting.folded),
        (data[0][:2],),
        weight={**how.weight, "bits": w, "per_channel": setting.per_channel},
        activation={**how.activation, "bits": a},
    ).eval()
    with torch.no_grad(), tb.calibrating(q):
        q(data[0][:256])
    tb.enable_quantization(q)
    return q


def measured(setting: Setting, base: nn.Module, data: Data, tested: Data, seed: int) -> Result:
    """Train, test and deploy one network."""
    torch.manual_seed(seed)
    q = prepared(setting, base, data)
    start = recognised(q, tested)
    train(q, data, RATE, seed, EPOCHS)
    q.eval()
    with tempfile.TemporaryDirectory() as folder:
        file = tb.deploy(q, (tested[0],), folder).files[-1]
        session = reference(file)
        name, output = session.inputs[0].name, session.outputs[0].name
        in_file = recognised(
            lambda x: torch.from_numpy(session.run({name: x.numpy()})[output]), tested
        )
    return Result(start, recognised(q, tested), in_file)


def settings(algorithms: Iterable[str]) -> Iterator[Setting]:
    """All cells of the first table."""
    for name in algorithms:
        for bits in BITS:
            for folded in (False, True):
                yield Setting(name, bits, folded)


def settings_per_tensor(algorithms: Iterable[str]) -> Iterator[Setting]:
    """All cells of the second table."""
    for name in algorithms:
        for bits in BITS[1:]:
            for folded in (False, True):
                yield Setting(name, bits, folded, per_channel=False)


def percent(counts: Iterable[int]) -> float:
    """The mean accuracy."""
    return 100 * statistics.mean(counts) / TESTED


def cell(results: list[Result]) -> str:
    """Mean accuracy, and that of the worst seed."""
    trained = [r.trained for r in results]
    return f"{percent(trained):.1f} ({percent([min(trained)]):.1f})"


def table(found: dict[Setting, list[Result]], rows: list[Setting]) -> list[str]:
    """One row an algorithm, two columns for each number of bits."""
    rows = [setting for setting in rows if setting in found]
    columns = list(dict.fromkeys((s.bits, s.folded) for s in rows))
    names = [f"W{w}A{a} {'folded' if f else 'apart'}" for (w, a), f in columns]
    lines = [f"| algorithm | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for name in dict.fromkeys(s.algorithm for s in rows):
        of = {(s.bits, s.folded): found[s] for s in rows if s.algorithm == name}
        lines.append(f"| {name} | {' | '.join(cell(of[column]) for column in columns)} |")
    return lines


def misses(found: dict[Setting, list[Result]], float_: float) -> list[str]:
    """The targets that were missed."""
    missed = []
    for setting, results in found.items():
        what = f"{setting.algorithm} W{setting.bits[0]}A{setting.bits[1]} " + (
            "folded" if setting.folded else "apart"
        )
        if any(abs(r.trained - r.deployed) > 1 for r in results):
            missed.append(f"{what}: onnxruntime and torch differ by more than one image")
        asked = setting.per_channel and not (setting.folded and setting.bits == (2, 4))
        below = float_ - percent(r.trained for r in results)
        if asked and below > LIMITS[setting.bits]:
            missed.append(f"{what}: {below:.1f} points below float")
    return missed


def page(found: dict[Setting, list[Result]], floats: list[int]) -> str:
    """The measured part of the page."""
    apart = max(abs(r.trained - r.deployed) for results in found.values() for r in results)
    first, second = list(settings(ALGORITHMS)), list(settings_per_tensor(PER_TENSOR))
    bits = ", ".join(f"{LIMITS[b]:g} with W{b[0]}A{b[1]}" for b in BITS)
    missed = misses(found, percent(floats))
    lines = [
        f"Accuracy in percent on {TESTED} images, the mean of {len(floats)} seeds and in brackets "
        f"the worst. The float network has {percent(floats):.1f} ({percent([min(floats)]):.1f}). "
        "W4A4 is 4 bits for weights and for activations.",
        "",
        *table(found, first),
        "",
        f"The files, run in onnxruntime, differ from torch by {apart} of {TESTED} images at most. "
        f"Targets (points below float at most: {bits}, the last with batch norms apart): "
        + ("all met." if not missed else f"**missed**: {'; '.join(missed)}."),
    ]
    if any(setting in found for setting in second):
        lines += ["", "The same with one scale for each weight:", "", *table(found, second)]
    return "\n".join(lines)


def write(text: str) -> None:
    """Replace what is between the marks of the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", encoding="utf-8")


def main() -> int:
    """Measure, write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.algorithms", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--print", action="store_true", help="do not write the page")
    parser.add_argument("algorithms", nargs="*", default=list(ALGORITHMS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started = time.process_time()
    data, tested = digits()
    bases = [float_network(data, seed) for seed in range(options.seeds)]
    floats = [recognised(base, tested) for base in bases]
    others = [name for name in PER_TENSOR if name in options.algorithms]
    found: dict[Setting, list[Result]] = {}
    for setting in (*settings(options.algorithms), *settings_per_tensor(others)):
        found[setting] = [
            measured(setting, base, data, tested, seed) for seed, base in enumerate(bases)
        ]
        print(setting, found[setting], flush=True)
    text = page(found, floats)
    print(f"{text}\n{time.process_time() - started:.0f} CPU seconds")
    if not options.print:
        write(text)
    return int(bool(misses(found, percent(floats))))


if __name__ == "__main__":
    sys.exit(main())
