"""The first link of the proof: onnxruntime computes from the exported file what torch computes.

Outputs are measured in steps of their own quantizer. An output without one (a classifier that
stays float) is measured on the 8-bit grid of its range, step = max |y| / 127.5: what an 8-bit
quantizer behind it would resolve. Quantizers are compared one by one as well, in the order in
which they run, so that a difference has a place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.diff import RunningDiff, TensorDiff, Tolerance
from onnxq.qparams import Array
from onnxq.runtime import open_model, reference
from onnxq.step_size import Step, Steps
from onnxq.verify import Report
from torch_bridge.fake_quant import FakeQuantize
from torch_bridge.flat_call import FlatCall
from torch_bridge.state import evaluating

LIMITS = Tolerance(max_steps=1.0, max_moved=0.001, max_relative=1e-3)
"""One step at most, and 0.1 % of the elements beyond half a step."""


def prove_export(call: FlatCall, file: Path, feeds: Mapping[str, Array]) -> Report:
    """Compare the file in onnxruntime's reference session with the model in eval mode."""
    opened = open_model(file)
    nodes = {n.name: n.output[0] for n in opened.proto.graph.node if n.op_type == "FakeQuantize"}
    modules = {
        path: module
        for path, module in call.model.named_modules()
        if isinstance(module, FakeQuantize) and path in nodes
    }
    seen: dict[str, Tensor] = {}
    with evaluating(call), torch.no_grad(), _watched(modules, seen):
        results = [t.detach().cpu().numpy() for t in call(*call.tensors)]
    outputs = [o.name for o in opened.proto.graph.output]
    taps = {path: nodes[path] for path in seen}
    session = reference(opened, taps.values())
    wanted = {i.name for i in session.inputs}  # exporters drop inputs that nothing reads
    made = session.run({name: value for name, value in feeds.items() if name in wanted})
    steps = Steps(opened)
    return Report(
        outputs=tuple(
            _difference(name, name, mine, made[name], _unit(steps.of(name), mine))
            for name, mine in zip(outputs, results, strict=True)
        ),
        layers=tuple(
            _difference(tap, path, mine, made[tap], _unit(steps.of(tap), mine))
            for path, tap in taps.items()
            for mine in (seen[path].cpu().numpy(),)
        ),
        samples=1,
        sessions=("torch", session.kind),
        notes=(),
    )


def _difference(name: str, node: str, mine: Array, theirs: Array, step: Step | None) -> TensorDiff:
    running = RunningDiff(name, name, step)
    running.add(mine, theirs)
    return running.result("", node, LIMITS)


def _unit(step: Step | None, value: Array) -> Step | None:
    """The step to measure in: the tensor's own, but no finer than 8 bits over its range.

    Float sums of two libraries agree to some 1e-6, which 16-bit grids resolve.
    """
    eight = _eight_bit(value)
    if step is None or eight is None:
        return step or eight
    return eight if step.largest < eight.largest / 16 else step


def _eight_bit(value: Array) -> Step | None:
    """The step of an 8-bit grid over the range of a float tensor."""
    if value.dtype.kind != "f":
        return None
    finite = np.abs(value[np.isfinite(value)])
    largest = float(finite.max()) if finite.size else 0.0
    return Step(np.asarray(largest / 127.5)) if largest else None


class _watched:
    """Keep what each module returned at its first call."""

    def __init__(self, modules: Mapping[str, nn.Module], seen: dict[str, Tensor]) -> None:
        self._modules, self._seen = modules, seen

    def __enter__(self) -> None:
        self._hooks = [m.register_forward_hook(self._keep(p)) for p, m in self._modules.items()]

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _keep(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Tensor) -> None:
            self._seen.setdefault(path, output.detach())

        return hook
