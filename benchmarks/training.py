"""What quantization costs in training: `python -m benchmarks.training`.

* One step (forward, backward, SGD) of ResNet-18, batch 16, 64x64, as a multiple of the float step:
  ours eager and with `compile_kernels`, both also as they are where there was no compiler for the
  kernels in C (LSQ, weights per channel, activations per tensor), and
  torch.ao's FX quantization-aware training beside it, with its observers (its default) and without
  (as ours). Both quantize the same tensors: what torch.ao rounds besides is taken out.
* The same of a small vision transformer, which torch.export captures.
* The float step with copies in the place of quantizers, which is the least that any quantizer
  costs: it reads a tensor and writes one, in both directions.
* One fake quantization (forward and backward) of 16.8 MB, in copies of that tensor.

CPU time of one thread, all jobs in turns; the figure is the median of the rounds' ratios, beside
their quartiles. They depend on the machine, and rise on a busy one: quantizers are bound by memory
and caches, which all processes share, and convolutions by arithmetic.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, fx, nn

import torch_bridge as tb
from benchmarks.clock import in_turns
from benchmarks.resnet18 import ResNet18
from benchmarks.vit import ViT
from torch_bridge.arithmetic import functional, native
from torch_bridge.arithmetic.functional import compile_kernels, fake_quantize
from torch_bridge.arithmetic.grid import Grid
from torch_bridge.arithmetic.kernels import Kernels

RESULTS = Path(__file__).parent / "results" / "training.json"
TARGETS = {
    "ours, eager": 1.30,
    "ours, compiled": 1.20,
    "fake quantization, eager": 5.0,
    "ViT by torch.export, eager": 1.25,
}

_VIT_EAGER, _VIT_COMPILED = "ViT by torch.export, eager", "ViT by torch.export, compiled"

Job = Callable[[], object]


def step(model: nn.Module, x: Tensor, target: Tensor) -> Job:
    """One step of training."""
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    loss = nn.CrossEntropyLoss()

    def run() -> None:
        optimiser.zero_grad()
        loss(model(x), target).backward()
        optimiser.step()

    return run


def ours(x: Tensor, network: type[nn.Module] = ResNet18) -> fx.GraphModule:
    """A network prepared for tensorrt: LSQ, weights per channel, activations per tensor."""
    torch.manual_seed(0)
    model = tb.prepare(network(), "tensorrt", (x,), weight="lsq", activation="lsq")
    with tb.calibrating(model), torch.no_grad():
        model(x)
    tb.enable_quantization(model)
    return model.train()


def torch_ao(x: Tensor, placed: fx.GraphModule) -> dict[str, nn.Module]:
    """The same network through torch.ao's FX flow, where this torch still has it."""
    try:
        from torch.ao.quantization import disable_observer, get_default_qat_qconfig_mapping
        from torch.ao.quantization.quantize_fx import prepare_qat_fx
    except ImportError:
        return {}
    models = {}
    for name in ("torch.ao FX", "torch.ao FX, observers off"):
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated, and says so at every call
            mapping = get_default_qat_qconfig_mapping("x86")
            models[name] = prepare_qat_fx(ResNet18().train(), mapping, (x,))
        place_as(placed, models[name])
        models[name](x)  # finds the ranges
    models[name].apply(disable_observer)
    return models


def is_quantizer(module: nn.Module) -> bool:
    """Whether it is a fake quantizer; both libraries name their base class so."""
    return any(
        base.__name__ in ("FakeQuantize", "FakeQuantizeBase") for base in type(module).__mro__
    )


def quantizers(model: nn.Module) -> int:
    """How many fake quantizers a network has."""
    return sum(map(is_quantizer, model.modules()))


def place_as(placed: fx.GraphModule, model: fx.GraphModule) -> None:
    """Take the quantizers out of `model` that stand on other tensors than those of `placed`."""
    wanted = {node.args[0].name for node in quantizer_calls(placed)}
    for node in quantizer_calls(model):
        if node.args[0].name not in wanted:
            node.replace_all_uses_with(node.args[0])
            model.graph.erase_node(node)
            model.delete_submodule(node.target)
    model.recompile()


def quantizer_calls(model: fx.GraphModule) -> list[fx.Node]:
    """The calls of quantizers of activations."""
    calls = [node for node in model.graph.nodes if node.op == "call_module"]
    return [node for node in calls if is_quantizer(model.get_submodule(node.target))]


def without_c(job: Job) -> Job:
    """The job as it is where no compiler was at hand."""

    def run() -> None:
        with patch.object(native, "library", lambda: None):
            job()

    return run


def copying(job: Job) -> Job:
    """The job with quantizers that only copy, forward and backward."""

    def copy_back(dy: Tensor, x: Tensor, s: Tensor, *_: object) -> tuple[Tensor, Tensor]:
        return dy.clone(), torch.zeros_like(s)

    kernels = Kernels(lambda x, *_: x.clone(), lambda dy, *_: dy.clone(), copy_back)

    def run() -> None:
        with patch.object(functional, "kernels_for", lambda x: kernels):
            job()

    return run


def compiled(job: Job) -> Job:
    """The job with compiled kernels switched on around it."""

    def run() -> None:
        compile_kernels(True)
        try:
            job()
        finally:
            compile_kernels(None)

    return run


def ratios(baseline: Job, jobs: dict[str, Job], rounds: int) -> dict[str, list[float]]:
    """Each job's CPU time divided by the baseline's, round by round."""
    for job in (baseline, *jobs.values()):  # compile, and let the allocator settle
        job()
        job()
    seconds = in_turns({"": baseline, **jobs}, rounds)
    base = seconds.pop("")
    return {name: [a / b for a, b in zip(s, base, strict=True)] for name, s in seconds.items()}


def measure(rounds: int) -> dict[str, dict[str, Any]]:
    """All figures by name."""
    torch.manual_seed(0)
    x, target = torch.randn(16, 3, 64, 64), torch.randint(0, 100, (16,))
    mine = ours(x)
    networks = {"ours, eager": mine, **torch_ao(x, mine)}
    jobs = {name: step(network, x, target) for name, network in networks.items()}
    jobs["ours, compiled"] = compiled(jobs["ours, eager"])
    jobs["ours, eager, without C"] = without_c(jobs["ours, eager"])
    jobs["ours, compiled, without C"] = without_c(jobs["ours, compiled"])
    jobs["copies in the place of quantizers"] = copying(step(ours(x), x, target))
    found = ratios(step(ResNet18().train(), x, target), jobs, rounds)

    transformer = ours(x, ViT)
    if transformer.onnxq_report.capture != "export":
        raise RuntimeError("the transformer was to be captured by torch.export")
    eager = step(transformer, x, target)
    of_vit = {_VIT_EAGER: eager, _VIT_COMPILED: compiled(eager)}
    found |= ratios(step(ViT().train(), x, target), of_vit, rounds)
    networks |= dict.fromkeys(of_vit, transformer)

    values = torch.randn(4_200_000, requires_grad=True)
    ones, scale, zero = torch.ones(4_200_000), torch.tensor(0.02), torch.tensor(0, dtype=torch.int8)

    def quantize() -> None:
        y = fake_quantize(values, scale, zero, Grid(None, -128, 127))
        torch.autograd.grad(y, values, ones)

    found |= ratios(lambda: ones.clone(), {"fake quantization, eager": quantize}, 5 * rounds)
    figures: dict[str, dict[str, Any]] = {}
    for name, values_of in found.items():
        low, median, high = statistics.quantiles(values_of, n=4)
        figures[name] = {"median": median, "quartiles": [low, high]}
        network = networks.get(name, mine if name.startswith("ours") else None)
        if network is not None:
            figures[name]["quantizers"] = quantizers(network)
    return figures


def show(figures: dict[str, dict[str, Any]]) -> None:
    """Print the table."""
    table = Table(title="Cost of quantization in training")
    for column in ("what", "target", "measured", "quartiles", "quantizers"):
        table.add_column(column)
    for name, figure in figures.items():
        unit = "copies" if "fake" in name else "x float step"
        target = f"<= {TARGETS[name]:.2f}" if name in TARGETS else ""
        low, high = figure["quartiles"]
        count = str(figure.get("quantizers", ""))
        median = f"{figure['median']:.2f} {unit}"
        table.add_row(name, target, median, f"{low:.2f} .. {high:.2f}", count)
    Console().print(table)


def main() -> int:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = measure(options.rounds)
    results = {"torch": torch.__version__, "rounds": options.rounds, "figures": figures}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(results))
    else:
        show(figures)
    return int(any(figures[name]["median"] > limit for name, limit in TARGETS.items()))


if __name__ == "__main__":
    sys.exit(main())
