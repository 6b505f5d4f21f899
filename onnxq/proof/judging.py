"""The verdict on two runs: by their outputs, and by each kernel where the outputs do not tell.

Outputs within their limits prove that both compute the same. Beyond them there is a fault, or the
network amplifies rounding; `onnxq.proof.kernels` tells the two apart. If each kernel is right by
itself, the difference of the outputs is drift: it is reported, not judged. A kernel that is wrong
fails the proof, and is named.
"""

from __future__ import annotations

import math
from dataclasses import replace

from onnxq.errors import OnnxqError
from onnxq.operators.weight_axis import BIAS_INPUT
from onnxq.proof.difference import TensorDiff, Tolerance
from onnxq.proof.kernel_difference import KernelDiff
from onnxq.proof.kernels import kernels
from onnxq.proof.trusted import Running, Trusted
from onnxq.proof.verify import Report, compare

ANYTHING = Tolerance(max_steps=math.inf, max_moved=1.0, max_relative=math.inf)
"""Any finite difference: it is measured, not judged."""
_DRIFT = replace(ANYTHING, max_labels=1.0)
_ROUNDED_BIAS = (
    ". So little may be a bias that the file has as int32 codes: in a backend of your own, put "
    "RoundBias() after QuantizeBias() in the pipeline, which makes its rounding a change that is "
    "measured, not a fault"
)
"""Codes of a bias are off by up to half a step of the layer's sums, which may be coarse."""


def judged(trusted: Trusted, other: Running, limits: Tolerance) -> Report:
    """Compare `other` with `trusted`, kernel by kernel if the outputs differ too much."""
    report = compare(trusted, other, limits)
    if report.passed or report.sessions[1] != other.kind:
        return report
    if any(o.nonfinite or not o.finite for o in report.outputs):
        return report
    try:
        found = tuple(kernels(trusted, other, limits.max_unexplained))
    except OnnxqError as error:
        note = f"the kernels could not be compared one by one: {error.what}"
        return replace(report, notes=(*report.notes, note))
    if not found:
        return report
    worst = report.worst
    assert worst is not None
    told = replace(report, kernels=found, notes=(*report.notes, _verdict(worst, found)))
    if told.wrong is not None:
        return told
    return replace(told, outputs=tuple(replace(o, tolerance=_DRIFT) for o in report.outputs))


def drift(output: TensorDiff) -> str:
    """How far an output is off from input to output, in words."""
    unit = {"steps": "steps", "relative": "of the largest value", "exact": "apart"}[output.unit]
    ratio = f", {output.sqnr:.1f} dB" if math.isfinite(output.sqnr) else ""
    return f"'{output.name}' is up to {output.max:.3g} {unit} off{ratio}, {output.moved:.2%} moved"


def fault(report: Report) -> tuple[str, str] | None:
    """What is wrong with the first wrong kernel of a report, and what to do next."""
    kernel = report.wrong
    if kernel is None:
        return None
    maker = f"{kernel.op} '{kernel.node}'" if kernel.op else kernel.node
    more = sum(not each.passed for each in report.kernels) - 1
    others = f" ({more} more are wrong)" if more else ""
    if kernel.ends:
        return (
            f"the range of '{kernel.name}' ends {kernel.deviation:.3g} steps sooner than in the "
            f"source{others}",
            f"compare scale and zero point of '{kernel.name}' in both: 'onnxq inspect' lists them",
        )
    what = (
        f"{maker} is wrong by itself: on the inputs that it reads, '{kernel.name}' is off by "
        f"{kernel} before it is rounded, {kernel.moved:.2%} of it moved{others}"
    )
    if report.sessions[1] == "reference":
        return what, (
            f"compare weights, bias, scales and zero points of {maker} in source and file: "
            f"'onnxq explain FILE \"{kernel.name}\"' shows them, --explain what passes changed"
            + (_ROUNDED_BIAS if kernel.op in BIAS_INPUT and kernel.deviation < 0.5 else "")
        )
    return what, (
        "the file is right, but the kernel that onnxruntime's optimiser chooses is not: keep "
        f"{maker} in float, run with graph optimisation disabled, or use another version of "
        "onnxruntime"
    )


def _verdict(worst: TensorDiff, found: tuple[KernelDiff, ...]) -> str:
    wrong = [kernel for kernel in found if not kernel.passed]
    furthest = max(found, key=lambda kernel: kernel.severity)
    if wrong:
        return (
            f"from input to output {drift(worst)}; {len(wrong)} of {len(found)} kernels are wrong "
            f"by themselves, on the inputs that they read: first '{wrong[0].name}', {wrong[0]} off "
            f"(the limit is {wrong[0].limit:.2g}), furthest '{furthest.name}', {furthest}"
        )
    return (
        f"from input to output {drift(worst)}, but that is drift: each of the {len(found)} kernels "
        f"by itself, on the inputs that it reads, is right. Before rounding they are at most "
        f"{furthest} off ('{furthest.name}', the limit is "
        f"{furthest.limit:.2g}); the network amplifies what rounding "
        "changes. Measure its accuracy in onnxruntime itself"
    )
