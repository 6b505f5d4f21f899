"""The first link of the proof: onnxruntime computes from the exported file what torch computes.

Outputs are measured in steps of their own quantizer. An output without one (a classifier that
stays float) is measured on the 8-bit grid of its range, step = max |y| / 127.5: what an 8-bit
quantizer after it would resolve.

The two sum in different orders, so a value halfway between two codes, up to that rounding, may go
either way, and with few bits one such value moves many others after it. If outputs differ, the file
is therefore run again *with the codes of torch*: consumers of a quantizer read the result of
torch's quantizer. Then no difference is passed on, every quantizer and every output is compared on
its own, and a difference shows what is wrong and where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from onnxq.canonical import fake_quantize, fake_quantize_log
from onnxq.proof.difference import RunningDiff, TensorDiff, Tolerance
from onnxq.proof.kernels import cut_at
from onnxq.proof.step_size import Steps, StepSize
from onnxq.proof.verify import Report
from onnxq.quant.qparams import Array
from onnxq.running.sessions import OpenModel, open_model, reference
from torch_bridge.capture.recorded_run import RecordedRun

_QUANTIZERS = (fake_quantize.OP, fake_quantize_log.OP)
LIMITS = Tolerance(max_steps=1.0, max_moved=0.001, max_relative=1e-3)
"""One step at most, and 0.1 % of the elements beyond half a step."""


def prove_export(run: RecordedRun, file: Path, feeds: Mapping[str, Array]) -> Report:
    """Compare the file in onnxruntime's reference session with a run of the model in torch."""
    opened = open_model(file)
    quantizers = {n.name: n.output[0] for n in opened.proto.graph.node if _is_quantizer(n)}
    # A quantizer that ran twice is two nodes, 'path' and 'path_1', in no certain order.
    known = {path: values[0] for path, values in run.returned.items() if len(values) == 1}
    mine = {quantizers[path]: known[path] for path in quantizers if path in known}
    outputs = (t.detach().cpu().numpy() for t in run.outputs.values())
    names = dict(zip((o.name for o in opened.proto.graph.output), outputs, strict=True))
    paths = {name: path for path, name in quantizers.items()}
    comparison = _Comparison(paths, names, mine, Steps(opened))
    free = comparison.report(opened, feeds)
    if free.passed:
        return free
    worst = free.worst
    assert worst is not None
    fresh = {name: f"{name}.torch" for name in mine}
    given = {fresh[name]: value for name, value in mine.items()}
    cut = cut_at(opened, fresh, given)
    forced = comparison.report(cut, {**feeds, **given}, alone=True)
    judged = replace(forced, outputs=forced.outputs + forced.layers)
    note = (
        f"run from input to output, '{worst.name}' differs by up to {worst.max:.3g} steps, "
        f"{worst.moved:.2%} of its elements moved; the numbers are those of every quantizer and "
        "output by itself, reading the codes of torch"
    )
    if judged.passed:
        note += ": only values between two codes went another way"
    return replace(judged, notes=(note,))


@dataclass(frozen=True)
class _Comparison:
    """The values of torch that a file is compared with, by tensor name."""

    paths: Mapping[str, str]
    outputs: Mapping[str, Array]
    codes: Mapping[str, Array]
    steps: Steps

    def report(
        self, opened: OpenModel, feeds: Mapping[str, Array], *, alone: bool = False
    ) -> Report:
        """Run a file and compare it; `alone`: its quantizers read the codes of torch.

        A sum between two codes goes one way or the other by the order in which a CPU adds it, so
        `alone` allows one value to move, even if that is more than a thousandth of a small tensor.
        """
        session = reference(opened, self.codes)
        wanted = {i.name for i in session.inputs}  # exporters drop inputs that nothing reads
        made = session.run({name: value for name, value in feeds.items() if name in wanted})

        def differences(of: Mapping[str, Array]) -> tuple[TensorDiff, ...]:
            return tuple(self._difference(n, v, made[n], alone) for n, v in of.items())

        return Report(
            outputs=differences(self.outputs),
            layers=differences(self.codes),
            samples=1,
            sessions=("torch", session.kind),
            notes=(),
        )

    def _difference(self, name: str, mine: Array, other: Array, alone: bool) -> TensorDiff:
        running = RunningDiff(name, name, _unit(self.steps.of(name), mine))
        running.add(mine, other)
        one = 1 / max(mine.size, 1) if alone else 0.0
        limits = replace(LIMITS, max_moved=max(LIMITS.max_moved, one))
        return running.result("", self.paths.get(name, name), limits)


def _is_quantizer(node: onnx.NodeProto) -> bool:
    return node.domain == fake_quantize.DOMAIN and node.op_type in _QUANTIZERS


def _unit(step: StepSize | None, value: Array) -> StepSize | None:
    """The step to measure in: the tensor's own, but no finer than 8 bits over its range.

    Float sums of two libraries agree to some 1e-6 of the largest term, which 16-bit grids resolve.
    """
    eight = _eight_bit(value)
    if step is None or eight is None:
        return step or eight
    return eight if step.largest < eight.largest / 16 else step


def _eight_bit(value: Array) -> StepSize | None:
    """The step of an 8-bit grid over the range of a float tensor."""
    if value.dtype.kind != "f":
        return None
    finite = np.abs(value[np.isfinite(value)])
    largest = float(finite.max()) if finite.size else 0.0
    return StepSize(np.asarray(largest / 127.5)) if largest else None
