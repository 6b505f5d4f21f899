"""What quantization costs in training: `python -m benchmarks.training`.

* One step (forward, backward, SGD) of ResNet-18, batch 16, 64x64, as a multiple of the float step:
  ours eager and with compiled kernels (LSQ, weights per channel, activations per tensor), and
  torch.ao's FX quantization-aware training beside it.
* One fake quantization (forward and backward) of 16.8 MB, in copies of that tensor.

CPU time of one thread, in interleaved rounds; the figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import torch_bridge as tb
from benchmarks.resnet18 import ResNet18
from torch_bridge.functional import compile_kernels, fake_quantize

RESULTS = Path(__file__).parent / "results" / "training.json"
TARGETS = {"ours, eager": 1.30, "ours, compiled": 1.20, "fake quantization, eager": 5.0}

Job = Callable[[], object]


def step(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> Job:
    """One step of training."""
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    loss = nn.CrossEntropyLoss()

    def run() -> None:
        optimiser.zero_grad()
        loss(model(x), target).backward()
        optimiser.step()

    return run


def ours(x: torch.Tensor) -> nn.Module:
    """ResNet-18 prepared for tensorrt: LSQ, weights per channel, activations per tensor."""
    torch.manual_seed(0)
    model = tb.prepare(ResNet18(), "tensorrt", (x,), weight="lsq", activation="lsq")
    with tb.calibrating(model), torch.no_grad():
        model(x)
    tb.enable_quantization(model)
    return model.train()


def torch_ao(x: torch.Tensor) -> nn.Module | None:
    """The same network through torch.ao's FX flow, where this torch still has it."""
    try:
        from torch.ao.quantization import get_default_qat_qconfig_mapping
        from torch.ao.quantization.quantize_fx import prepare_qat_fx
    except ImportError:
        return None
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and says so at every call
        model = prepare_qat_fx(ResNet18().train(), get_default_qat_qconfig_mapping("x86"), (x,))
    return model


def compiled(job: Job) -> Job:
    """The job with compiled kernels switched on around it."""

    def run() -> None:
        compile_kernels(True)
        try:
            job()
        finally:
            compile_kernels(False)

    return run


def ratios(baseline: Job, jobs: dict[str, Job], rounds: int) -> dict[str, float]:
    """Median over rounds of each job's CPU time divided by the baseline's in the same round."""
    for job in (baseline, *jobs.values()):
        job()
        job()
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        base = seconds(baseline)
        for name, job in jobs.items():
            found[name].append(seconds(job) / base)
    return {name: statistics.median(values) for name, values in found.items()}


def seconds(job: Job) -> float:
    """CPU time of one call."""
    start = time.process_time()
    job()
    return time.process_time() - start


def measure(rounds: int) -> dict[str, float]:
    """All figures by name."""
    x, target = torch.randn(16, 3, 64, 64), torch.randint(0, 100, (16,))
    torch.manual_seed(0)
    model = ours(x)
    train = step(model, x, target)
    jobs = {"ours, eager": train, "ours, compiled": compiled(train)}
    other = torch_ao(x)
    if other is not None:
        jobs["torch.ao FX"] = step(other, x, target)
    found = ratios(step(ResNet18().train(), x, target), jobs, rounds)

    values = torch.randn(4_200_000, requires_grad=True)
    ones, scale, zero = torch.ones(4_200_000), torch.tensor(0.02), torch.tensor(0, dtype=torch.int8)

    def quantize() -> None:
        y = fake_quantize(values, scale, zero, axis=None, lo=-128, hi=127)
        torch.autograd.grad(y, values, ones)

    copy = ratios(lambda: ones.clone(), {"fake quantization, eager": quantize}, 5 * rounds)
    return found | copy


def main() -> int:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(options.rounds)
    results: dict[str, Any] = {"torch": torch.__version__, "rounds": options.rounds, **found}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(results))
    else:
        table = Table("what", "target", "measured", title="Cost of quantization in training")
        for name, value in found.items():
            unit = "copies" if "fake" in name else "x float step"
            target = f"<= {TARGETS[name]}" if name in TARGETS else ""
            table.add_row(name, target, f"{value:.2f} {unit}")
        Console().print(table)
    return int(any(found[name] > limit for name, limit in TARGETS.items()))


if __name__ == "__main__":
    sys.exit(main())
