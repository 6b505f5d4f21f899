"""Which operators of a quantized model onnxruntime runs in integers, and why the others do not.

onnxruntime's CPU kernels work on codes where an operator stands between DQ and Q in a form it
knows (`RULES`). `predict` follows its optimiser (`levels`) and applies the rules. Everything
here was measured against the graph that onnxruntime 1.31 writes after optimisation, and the tests
compare with it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from onnxq.graph import Model
from onnxq.operators.fused_operators import RULES, FusionRule
from onnxq.operators.integer_operators import SUMS, find
from onnxq.ort_fusion.clips import clip_is_redundant, why_clip_stays
from onnxq.ort_fusion.graph import DEQUANTIZE, QUANTIZE, OrtGraph, Refusal, Step, graphs_of
from onnxq.ort_fusion.levels import first_level, second_level
from onnxq.ort_fusion.pairs import INT8, code_type, same_parameters
from onnxq.ort_fusion.weights import REQUANTIZED
from onnxq.pipeline import Pipeline
from passes.fold_constants import FoldConstants
from passes.infer_shapes import InferShapes

Codes = np.dtype[np.generic]


@dataclass(frozen=True)
class Prediction:
    """What onnxruntime does with one node."""

    output: str
    """The first tensor that the node makes."""
    op: str
    kernel: str
    """The operator that runs on codes, '' where it computes in float."""
    rule: str = ""
    """Short name of what keeps it in float."""
    reason: str = ""
    requantized: bool = False
    """Whether onnxruntime quantizes the float weight itself, with a range of its own."""
    merged_into: str = ""
    """Output of the node that computes this one as well, where it is not one of its own."""

    @property
    def integer(self) -> bool:
        """Whether the node runs on codes."""
        return bool(self.kernel)


@dataclass(frozen=True)
class Outlook:
    """What onnxruntime does with a model."""

    nodes: Mapping[str, Prediction]
    """By the first tensor that the node makes; quantizers are not listed."""
    refusals: tuple[Refusal, ...]


def predict(model: Model, *, weights_to_u8: bool = False) -> Outlook:
    """What onnxruntime makes of every node, in the order of the graph.

    Args:
        model: a model in the QDQ form; nothing is changed.
        weights_to_u8: whether stored int8 weights become uint8, as `session.x64quantprecision`
            does on CPUs whose 8-bit products saturate.
    """
    steps = (FoldConstants(), InferShapes())
    ready = Pipeline(*steps).run(model).model
    found: dict[str, Prediction] = {}
    refusals: list[Refusal] = []
    for graph in graphs_of(ready):
        ops = {step.key: step.op for step in graph}
        first_level(graph)
        second_level(graph, weights_to_u8)
        for step in graph:
            if step.key and step.op not in (QUANTIZE, DEQUANTIZE):
                made = _judge(graph, step)
                found[step.key] = made
                for key in filter(None, step.also):
                    found[key] = replace(made, output=key, op=ops[key], merged_into=step.key)
        refusals += graph.refusals
    return Outlook(found, tuple(refusals))


class _Float(Exception):
    """Why an operator computes in float."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule, self.reason = rule, reason


def _judge(graph: OrtGraph, step: Step) -> Prediction:
    domain, _, op = step.op.rpartition("::")
    if find(domain, op) is not None or step.op in SUMS:
        return Prediction(step.key, step.op, op)  # the model asks for this kernel itself
    rule = RULES.get(step.op)
    try:
        if rule is None:
            raise _Float("no-integer-kernel", f"onnxruntime has no integer kernel for {step.op}")
        if step.since < rule.least_version:
            raise _Float(
                "operator-version",
                f"{step.op} runs on codes from opset {rule.least_version} on, not in version "
                f"{step.since}",
            )
        kernel = _FORMS[rule.form](graph, step, rule) or step.op
    except _Float as why:
        return Prediction(step.key, step.op, "", why.rule, why.reason)
    refusal = _refusal(graph, step, kernel)
    if refusal is not None:
        graph.refusals.append(refusal)
    return Prediction(step.key, step.op, kernel, requantized=REQUANTIZED in step.attrs)


def _refusal(graph: OrtGraph, step: Step, kernel: str) -> Refusal | None:
    """Why onnxruntime fails on what it made of `step`; None where it does not."""
    pairs = [graph.made_by(name, DEQUANTIZE) for name in step.inputs if name]
    inputs = [dq for dq in pairs if dq is not None]
    kinds = {kind.name for dq in inputs if (kind := code_type(graph, dq)) is not None}
    if step.op not in _TAKES_FLOAT8 and any(kind.startswith("float8") for kind in kinds):
        why = f"onnxruntime gives float8 codes to {kernel}, which does not take them"
        return Refusal(step.key, why)
    if step.op in ("ReduceMax", "ReduceMin") and step.since < 12:
        why = f"onnxruntime gives codes to {step.op}, which takes them from opset 12 on only"
        return Refusal(step.key, why)
    if step.op == "Concat" and any(graph.dtype(q.given(1)) == np.float16 for q in inputs):
        why = f"onnxruntime gives float16 scales to {kernel}, which takes float32"
        return Refusal(step.key, why, fix="compute in float32")
    if step.op in _WEIGHTED:
        inputs = inputs[:1]
    several = [q for q in inputs if not graph.is_scalar(q.given(1))]
    behind = [] if kernel == "MatMulIntegerToFloat" else _output(graph, step, needed=False)
    made = [q for q in behind if not graph.is_scalar(q.given(1))]
    vectors = [q for q in (*inputs, *behind) if graph.shape(q.given(1)) == [1]]
    if step.op in _WANTS_SCALARS and vectors:
        why = f"onnxruntime gives a vector of one scale to {kernel}, which takes scalars"
        return Refusal(step.key, why)
    if several or made:
        why = f"onnxruntime gives one scale per channel to {kernel}, which takes one per tensor"
        loads: bool | None = step.op in _FAILS_LATER
        if step.op in ("Concat", "Where"):
            loads = None
        elif step.op == "Softmax":
            loads = not several
        return Refusal(step.key, why, loads)
    return None


_TAKES_FLOAT8 = {"Reshape", "Transpose"}
_WEIGHTED = {"Conv", "Gemm", "MatMul"}
_STAYS_HALF = {
    *("Concat", "Expand", "Flatten", "Gather", "GatherElements", "Reshape"),
    *("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
}
"""These have float16 kernels, so they stay between their quantizers. All others get a Cast in front
and one behind before anything is fused."""
_WANTS_SCALARS = {"Add", "Mul", "AveragePool"}
_FAILS_LATER = {"Conv", "MatMul", "GlobalAveragePool"}
"""These load with one scale per channel of an activation, and fail when they run."""


# -- what stands around an operator -----------------------------------------------------------


def _inputs(graph: OrtGraph, step: Step, count: int | None) -> list[Step]:
    """The DQ nodes in front of `step`."""
    names = [name for name in step.inputs if name]
    found = [graph.made_by(name, DEQUANTIZE) for name in names]
    pairs = [dq for dq in found if dq is not None]
    if len(pairs) != (len(names) if count is None else count):
        bare = next((n for n, dq in zip(names, found, strict=True) if dq is None), names[0])
        what = "constant" if graph.is_constant(bare) else "tensor"
        raise _Float("float-input", f"its input {what} '{_shown(bare)}' is not quantized")
    return pairs


def _output(graph: OrtGraph, step: Step, *, needed: bool = True, clips: bool = True) -> list[Step]:
    """The Q nodes behind `step`, one for each output; also behind a Relu or Clip it makes idle."""
    names = [name for name in step.outputs if name]
    if len(names) == 1:
        follower = graph.only_reader(names[0])
        if follower is not None and follower.op in ("Relu", "Clip"):
            edges = graph.edges(follower.output)
            behind = [s for s, _ in edges if s.op == QUANTIZE]
            alone = len(edges) == 1 and follower.output not in graph.outputs
            if alone and len(behind) == 1 and not clip_is_redundant(graph, follower, behind[0]):
                why = why_clip_stays(graph, follower, behind[0])
                raise _Float("activation-stays", f"its {follower.op} stays: {why}")
            if alone and behind and clips:
                return behind
            if alone:
                raise _Float("no-output-quantizer", f"no quantizer follows its {follower.op}")
    quantizers = [s for name in names for s, _ in graph.edges(name) if s.op == QUANTIZE]
    if not quantizers and not needed:
        return []
    edges = [edge for name in names for edge in graph.edges(name)]
    leaving = [name for name in names if name in graph.outputs]
    if leaving and quantizers:
        raise _Float("float-result-leaves", f"its float result '{leaving[0]}' leaves the network")
    if len(quantizers) != len(names) or len(edges) != len(quantizers):
        if not quantizers:
            raise _Float("no-output-quantizer", "its result is not quantized")
        raise _Float("several-readers", "its float result has other readers than one quantizer")
    return quantizers


def _shown(name: str) -> str:
    return name if not name.startswith("\0") else "(made by onnxruntime)"


def _types(graph: OrtGraph, steps: Iterable[Step], *, half: bool = False) -> list[Codes]:
    """The types of codes; scales must be float32, or float16 with `half`."""
    found = []
    for step in steps:
        kind = code_type(graph, step)
        if kind is None:
            raise _Float("unknown-type", f"the type of its codes '{step.inputs[0]}' is not known")
        real = graph.dtype(step.given(1))
        if real is not None and real != np.float32 and not (half and real == np.float16):
            raise _Float("half", f"its scales are {real.name}: kernels take float32")
        found.append(kind)
    return found


def _refuse_bits(kinds: Iterable[Codes], rule: FusionRule, four_bit: bool = False) -> None:
    for kind in kinds:
        if kind.name in ("int16", "uint16") and not rule.sixteen_bit:
            raise _Float("16-bit", f"its codes are {kind.name}: kernels take 8 bits")
        if kind.name in ("int4", "uint4", "int2", "uint2") and not four_bit:
            raise _Float("4-bit", f"its codes are stored as {kind.name}: kernels take 8 bits")


# -- the forms --------------------------------------------------------------------------------


def _conv(graph: OrtGraph, step: Step, rule: FusionRule) -> str:
    inputs = _inputs(graph, step, None)
    (out,) = _output(graph, step)
    x, w, y = _types(graph, (inputs[0], inputs[1], out))
    _refuse_bits((x, w), rule)
    _same_type(x, y)
    if x == INT8:
        raise _Float("int8-input", _INT8)
    _check_bias(graph, inputs)
    return rule.kernel


_INT8 = (
    "its input is int8 and could not be made uint8 (several readers of its codes, or no zero "
    "point); kernels take uint8"
)


def _same_type(x: Codes, y: Codes) -> None:
    if x != y:
        raise _Float("mixed-types", f"its input codes are {x.name}, its output codes {y.name}")


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
        raise _Float(
            "bias-scale",
            f"its bias scale is {float(b[min(at, b.size - 1)]):.4g}, more than 1 % away from "
            f"input scale x weight scale = {float(wanted[min(at, wanted.size - 1)]):.4g}",
        )


def _check_bias_type(graph: OrtGraph, bias: Step) -> None:
    kind = code_type(graph, bias)
    if kind != np.int32:
        raise _Float("bias-type", f"its bias codes are {kind}, not int32")


def _gemm(graph: OrtGraph, step: Step, rule: FusionRule) -> str:
    inputs = _inputs(graph, step, None)
    out = _output(graph, step, needed=False)
    kinds = _types(graph, (*inputs[:2], *out))
    _refuse_bits(kinds[:2], rule)
    if kinds[0] == INT8 != kinds[1]:
        raise _Float("int8-input", "its input is int8 and its weight is not")
    if out:
        _same_type(kinds[0], kinds[2])
    if not all(graph.is_scalar(q.given(1)) for q in (inputs[0], *out)):
        raise _Float("per-channel", "its input or output has one scale per channel")
    for part, dq in (("input", inputs[0]), ("weight", inputs[1])):
        # One that onnxruntime makes up is a scalar, which does not do beside several scales.
        if not dq.given(2) or graph.shape(dq.given(2)) != graph.shape(dq.given(1)):
            raise _Float("no-zero-point", f"its {part} has no zero point")
    if len(inputs) > 2:
        for name in ("alpha", "beta"):
            if float(step.attrs.get(name, 1.0)) != 1.0:
                raise _Float("gemm-factor", f"it has a bias and {name} = {step.attrs[name]:.4g}")
        _check_bias_type(graph, inputs[2])
    return rule.kernel


def _matmul(graph: OrtGraph, step: Step, rule: FusionRule) -> str:
    inputs = _inputs(graph, step, None)
    kinds = _types(graph, inputs)
    if kinds[0] == INT8:
        raise _Float("int8-input", _INT8)
    _refuse_bits(kinds, rule)
    out = _output(graph, step, needed=False)
    if not out:
        return "MatMulIntegerToFloat"
    _same_type(kinds[0], _types(graph, out)[0])
    return rule.kernel


def _elementwise(graph: OrtGraph, step: Step, rule: FusionRule) -> str:
    inputs = _inputs(graph, step, rule.activations)
    out = _output(graph, step)
    kinds = _types(graph, (*inputs, *out), half=step.op in _STAYS_HALF)
    for kind in kinds[1:]:
        _same_type(kinds[0], kind)
    _refuse_bits(kinds, rule)
    return rule.kernel


def _moves(graph: OrtGraph, step: Step, rule: FusionRule) -> str:
    if step.op == "Resize" and step.attrs.get("mode", "nearest") != "nearest":
        raise _Float("interpolates", f"it interpolates ({step.attrs['mode']}), in float")
    (source,) = _inputs(graph, step, 1)
    out = _output(graph, step, clips=False)
    kinds = _types(graph, (source, *out), half=step.op in _STAYS_HALF)
    _refuse_bits(kinds, rule, four_bit=rule.sixteen_bit)
    for target, kind in zip(out, kinds[1:], strict=True):
        if kind != kinds[0] or not same_parameters(graph, source, target):
            raise _Float("unequal-parameters", "its input and output have other scales or types")
    return rule.kernel


_FORMS = {
    "conv": _conv,
    "gemm": _gemm,
    "matmul": _matmul,
    "elementwise": _elementwise,
    "moves": _moves,
}
