"""Why an operator of a quantized model runs in float: what each integer kernel asks for.

The rules (`RULES`) look at the graph that onnxruntime has made before it chooses integer operators.
They were measured with onnxruntime 1.31. Whether an operator runs on codes is not decided here:
`prediction` asks onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from onnxq.operators.fused_operators import RULES, FusionRule
from onnxq.operators.integer_operators import SUMS, find
from onnxq.ort_fusion.clips import why_clip_stays
from onnxq.ort_fusion.graph import DEQUANTIZE, QUANTIZE, OrtGraph, Step
from onnxq.ort_fusion.pairs import INT8, code_type, same_parameters

Codes = np.dtype[np.generic]

_STAYS_HALF = {
    *("Concat", "Expand", "Flatten", "Gather", "GatherElements", "Reshape"),
    *("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
}
"""These have float16 kernels, so they stay between their quantizers. All others get a Cast in front
and one behind before anything is fused."""


class StaysFloat(Exception):
    """Why an operator computes in float."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule, self.reason = rule, reason


def kernel_for(graph: OrtGraph, step: Step) -> str:
    """The operator that runs `step` on codes; raises StaysFloat where there is none."""
    domain, _, op = step.op.rpartition("::")
    if find(domain, op) is not None or step.op in SUMS:
        return op  # the model asks for this kernel itself
    rule = RULES.get(step.op)
    if rule is None:
        raise StaysFloat("no-integer-kernel", f"onnxruntime has no integer kernel for {step.op}")
    if step.since < rule.least_version:
        raise StaysFloat(
            "operator-version",
            f"{step.op} runs on codes from opset {rule.least_version} on, not in version "
            f"{step.since}",
        )
    return _FORMS[rule.form](graph, step, rule) or step.op


# -- the neighbours of an operator ----------------------------------------------------------


def _inputs(graph: OrtGraph, step: Step, count: int | None) -> list[Step]:
    """The DQ nodes in front of `step`."""
    names = [name for name in step.inputs if name]
    found = [graph.made_by(name, DEQUANTIZE) for name in names]
    pairs = [dq for dq in found if dq is not None]
    if len(pairs) != (len(names) if count is None else count):
        bare = next((n for n, dq in zip(names, found, strict=True) if dq is None), names[0])
        what = "constant" if graph.is_constant(bare) else "tensor"
        raise StaysFloat(
            "float-input", f"its input {what} '{_shown(graph, bare)}' is not quantized"
        )
    return pairs


def output_quantizers(graph: OrtGraph, step: Step, *, needed: bool = True) -> list[Step]:
    """The Q nodes behind `step`, one for each output; also behind a Relu or Clip it makes idle."""
    names = [name for name in step.outputs if name]
    if len(names) == 1:
        follower = graph.only_reader(names[0])
        if follower is not None and follower.op in ("Relu", "Clip"):
            behind = graph.only_reader(follower.output)
            if behind is not None and behind.op == QUANTIZE:
                why = why_clip_stays(graph, follower, behind)
                if why:
                    raise StaysFloat("activation-stays", f"its {follower.op} stays: {why}")
                return [behind]
            if behind is not None:
                raise StaysFloat("no-output-quantizer", f"no quantizer follows its {follower.op}")
    quantizers = [s for name in names for s, _ in graph.edges(name) if s.op == QUANTIZE]
    if not quantizers and not needed:
        return []
    edges = [edge for name in names for edge in graph.edges(name)]
    leaving = [name for name in names if name in graph.outputs]
    if leaving and quantizers:
        raise StaysFloat(
            "float-result-leaves", f"its float result '{leaving[0]}' leaves the network"
        )
    if len(quantizers) != len(names) or len(edges) != len(quantizers):
        if not quantizers:
            raise StaysFloat("no-output-quantizer", "its result is not quantized")
        raise StaysFloat("several-readers", "its float result has other readers than one quantizer")
    return quantizers


def _shown(graph: OrtGraph, name: str) -> str:
    return name if name in graph.probe.tensors else "(made by onnxruntime)"


def _types(graph: OrtGraph, steps: Iterable[Step], *, half: bool = False) -> list[Codes]:
    """The types of codes; scales must be float32, or float16 with `half`."""
    found = []
    for step in steps:
        kind = code_type(graph, step)
        if kind is None:
            raise StaysFloat(
                "unknown-type", f"the type of its codes '{step.inputs[0]}' is not known"
            )
        real = graph.dtype(step.given(1))
        if real is not None and real != np.float32 and not (half and real == np.float16):
            raise StaysFloat("half", f"its scales are {real.name}: kernels take float32")
        found.append(kind)
    return found


def _refuse_bits(kinds: Iterable[Codes], rule: FusionRule, four_bit: bool = False) -> None:
    for kind in kinds:
        if kind.name in ("int16", "uint16") and not rule.sixteen_bit:
            raise StaysFloat("16-bit", f"its codes are {kind.name}: kernels take 8 bits")
        if kind.name in ("int4", "uint4", "int2", "uint2") and not four_bit:
            raise StaysFloat("4-bit", f"its codes are stored as {kind.name}: kernels take 8 bits")


# -- the forms --------------------------------------------------------------------------------


def _conv(graph: OrtGraph, step: Step, rule: FusionRule) -> str:
    inputs = _inputs(graph, step, None)
    (out,) = output_quantizers(graph, step)
    x, w, y = _types(graph, (inputs[0], inputs[1], out))
    _refuse_bits((x, w), rule)
    _same_type(x, y)
    if x == INT8:
        raise StaysFloat("int8-input", _INT8)
    _check_bias(graph, inputs)
    return rule.kernel


_INT8 = (
    "its input is int8 and could not be made uint8 (several readers of its codes, or no zero "
    "point); kernels take uint8"
)


def _same_type(x: Codes, y: Codes) -> None:
    if x != y:
        raise StaysFloat("mixed-types", f"its input codes are {x.name}, its output codes {y.name}")


def _check_bias(graph: OrtGraph, inputs: list[Step]) -> None:
    if len(inputs) < 3:
        return
    _check_bias_type(graph, inputs[2])
    scales = [graph.value(dq.given(1)) for dq in inputs]
    if any(s is None for s in scales):
        return  # made by onnxruntime itself
    x, w, b = (np.asarray(s, np.float64).reshape(-1) for s in scales)
    wanted = x * w
    off = np.abs(b - wanted) > 1e-6 + 1e-2 * np.abs(wanted)
    if off.any():
        at = int(np.argmax(off))
        raise StaysFloat(
            "bias-scale",
            f"its bias scale is {float(b[min(at, b.size - 1)]):.4g}, more than 1 % away from "
            f"input scale x weight scale = {float(wanted[min(at, wanted.size - 1)]):.4g}",
        )


def _check_bias_type(graph: OrtGraph, bias: Step) -> None:
    kind = code_type(graph, bias)
    if kind != np.int32:
        raise StaysFloat("bias-type", f"its bias codes are {kind}, not int32")


def _gemm(graph: OrtGraph, step: Step, rule: FusionRule) -> str:
    inputs = _inputs(graph, step, None)
    out = output_quantizers(graph, step, needed=False)
    kinds = _types(graph, (*inputs[:2], *out))
    _refuse_bits(kinds[:2], rule)
    if kinds[0] == INT8 != kinds[1]:
        raise StaysFloat("int8-input", "its input is int8 and its weight is not")
    if out:
        _same_type(kinds[0], kinds[2])
    if not all(graph.is_scalar(q.given(1)) for q in (inputs[0], *out)):
        raise StaysFloat("per-channel", "its input or output has one scale per channel")
    for part, dq in (("input", inputs[0]), ("weight", inputs[1])):
        # One that onnxruntime makes up is a scalar, which does not do beside several scales.
        if not dq.given(2) or graph.shape(dq.given(2)) != graph.shape(dq.given(1)):
            raise StaysFloat("no-zero-point", f"its {part} has no zero point")
    if len(inputs) > 2:
        for name in ("alpha", "beta"):
            if float(step.attrs.get(name, 1.0)) != 1.0:
                raise StaysFloat(
                    "gemm-factor", f"it has a bias and {name} = {step.attrs[name]:.4g}"
                )
        _check_bias_type(graph, inputs[2])
    return rule.kernel


def _matmul(graph: OrtGraph, step: Step, rule: FusionRule) -> str:
    inputs = _inputs(graph, step, None)
    kinds = _types(graph, inputs)
    if kinds[0] == INT8:
        raise StaysFloat("int8-input", _INT8)
    _refuse_bits(kinds, rule)
    out = output_quantizers(graph, step, needed=False)
    if not out:
        return "MatMulIntegerToFloat"
    _same_type(kinds[0], _types(graph, out)[0])
    return rule.kernel


def _elementwise(graph: OrtGraph, step: Step, rule: FusionRule) -> str:
    inputs = _inputs(graph, step, rule.activations)
    out = output_quantizers(graph, step)
    kinds = _types(graph, (*inputs, *out), half=step.op in _STAYS_HALF)
    for kind in kinds[1:]:
        _same_type(kinds[0], kind)
    _refuse_bits(kinds, rule)
    return rule.kernel


def _moves(graph: OrtGraph, step: Step, rule: FusionRule) -> str:
    if step.op == "Resize" and step.attrs.get("mode", "nearest") != "nearest":
        raise StaysFloat("interpolates", f"it interpolates ({step.attrs['mode']}), in float")
    (source,) = _inputs(graph, step, 1)
    out = output_quantizers(graph, step)
    kinds = _types(graph, (source, *out), half=step.op in _STAYS_HALF)
    _refuse_bits(kinds, rule, four_bit=rule.sixteen_bit)
    for target, kind in zip(out, kinds[1:], strict=True):
        if kind != kinds[0] or not same_parameters(graph, source, target):
            raise StaysFloat(
                "unequal-parameters", "its input and output have other scales or types"
            )
    return rule.kernel


_FORMS = {
    "conv": _conv,
    "gemm": _gemm,
    "matmul": _matmul,
    "elementwise": _elementwise,
    "moves": _moves,
}
