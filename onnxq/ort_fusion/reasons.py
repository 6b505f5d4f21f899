"""Reasons why an operator of a quantized model runs in float: the requirements of integer kernels.

The rules (`RULES`) look at the graph just before onnxruntime chooses integer operators. They were
measured with onnxruntime 1.31. They do not decide whether an operator runs on codes: `prediction`
asks onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from onnxq.operators.fused_operators import RULES, FusionRule
from onnxq.operators.integer_operators import SUMS, find
from onnxq.ort_fusion.clips import CLIPS, why_kept
from onnxq.ort_fusion.graph import DEQUANTIZE, QUANTIZE, Operation, OrtGraph
from onnxq.ort_fusion.pairs import INT8, code_type, same_parameters

Codes = np.dtype[np.generic]


class StaysFloat(Exception):
    """The reason why an operator computes in float."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule, self.reason = rule, reason


def runs_on_codes(op: str) -> bool:
    """Whether `op` itself is an integer operator."""
    domain, _, name = op.rpartition("::")
    return find(domain, name) is not None or op in SUMS


def kernel_for(graph: OrtGraph, operation: Operation) -> str:
    """The operator that runs `operation` on codes; raises StaysFloat if there is none."""
    op = operation.op
    if runs_on_codes(op):
        return op.rpartition("::")[2]
    rule = RULES.get(op)
    if rule is None:
        raise StaysFloat("no-integer-kernel", f"onnxruntime has no integer kernel for {op}")
    if graph.opset < rule.least_version:
        raise StaysFloat(
            "operator-version",
            f"{op} runs on codes from opset {rule.least_version} on, not in opset {graph.opset}",
        )
    return _FORMS[rule.form](graph, operation, rule) or op


# -- the neighbours of an operator ----------------------------------------------------------


def _inputs(graph: OrtGraph, operation: Operation, count: int | None) -> list[Operation]:
    """The DQs before `operation`."""
    names = [name for name in operation.inputs if name]
    found = {name: graph.made_by(name, DEQUANTIZE) for name in names}
    pairs = [dq for name in names if (dq := found[name]) is not None]
    if len(pairs) != (len(names) if count is None else count):
        bare = next((name for name, dq in found.items() if dq is None), names[0])
        what = "constant" if graph.is_constant(bare) else "tensor"
        shown = bare if bare in graph.probe.tensors else "(made by onnxruntime)"
        raise StaysFloat("float-input", f"its input {what} '{shown}' is not quantized")
    return pairs


def output_quantizers(
    graph: OrtGraph, operation: Operation, *, needed: bool = True
) -> list[Operation]:
    """The Qs after `operation`, one for each output; also after a redundant Relu or Clip."""
    names = [name for name in operation.outputs if name]
    clip = graph.only_consumer(names[0]) if len(names) == 1 else None
    after = None if clip is None or clip.op not in CLIPS else graph.only_consumer(clip.output)
    if clip is not None and after is not None:
        if after.op != QUANTIZE:
            raise StaysFloat("no-output-quantizer", f"no quantizer follows its {clip.op}")
        why = why_kept(graph, clip, after)
        if why:
            raise StaysFloat("activation-stays", f"its {clip.op} stays: {why}")
        return [after]
    uses = [use for name in names for use in graph.consumers(name)]
    quantizers = [use for use in uses if use.op == QUANTIZE]
    if not quantizers:
        if needed:
            raise StaysFloat("no-output-quantizer", "its result is not quantized")
        return []
    leaving = next((name for name in names if name in graph.outputs), None)
    if leaving is not None:
        raise StaysFloat("float-result-leaves", f"its float result '{leaving}' is a model output")
    if not len(names) == len(uses) == len(quantizers):
        raise StaysFloat(
            "several-readers", "its float result has other consumers than one quantizer"
        )
    return quantizers


def _types(graph: OrtGraph, operation: Operation, pairs: Iterable[Operation]) -> list[Codes]:
    """The types of codes; scales must be float32, or float16 if there is a float16 kernel."""
    found = []
    for pair in pairs:
        kind = code_type(graph, pair)
        if kind is None:
            raise StaysFloat("unknown-type", f"the type of codes '{pair.inputs[0]}' is unknown")
        real = graph.dtype(pair.given(1))
        stays_half = real == np.float16 and not operation.cast
        if real is not None and real != np.float32 and not stays_half:
            raise StaysFloat("half", f"its scales are {real.name}: kernels take float32")
        found.append(kind)
    return found


def _refuse_bits(kinds: Iterable[Codes], rule: FusionRule, four_bit: bool = False) -> None:
    for kind in kinds:
        if kind.name in ("int16", "uint16") and not rule.sixteen_bit:
            raise StaysFloat("16-bit", f"its codes are {kind.name}: kernels take 8 bits")
        if kind.name in ("int4", "uint4", "int2", "uint2") and not four_bit:
            raise StaysFloat("4-bit", f"its codes are stored as {kind.name}: kernels take 8 bits")


def _same_type(x: Codes, y: Codes) -> None:
    if x != y:
        raise StaysFloat("mixed-types", f"its input codes are {x.name}, its output codes {y.name}")


def _refuse_int8(kind: Codes) -> None:
    if kind == INT8:
        raise StaysFloat(
            "int8-input",
            "its input is int8 and could not be made uint8 (several consumers of its codes, or no "
            "zero point); kernels take uint8",
        )


def _check_bias_type(graph: OrtGraph, bias: Operation) -> None:
    kind = code_type(graph, bias)
    if kind != np.int32:
        raise StaysFloat("bias-type", f"its bias codes are {kind}, not int32")


def _check_bias_scale(graph: OrtGraph, inputs: list[Operation]) -> None:
    scales = [graph.value(dq.given(1)) for dq in inputs]
    if any(s is None for s in scales):
        return  # computed by onnxruntime
    x, w, b = (np.asarray(s, np.float64).reshape(-1) for s in scales)
    bias, wanted = np.broadcast_arrays(b, x * w)
    off = np.abs(bias - wanted) > 1e-6 + 1e-2 * np.abs(wanted)
    if off.any():
        at = int(np.argmax(off))
        raise StaysFloat(
            "bias-scale",
            f"its bias scale is {bias[at]:.4g}, more than 1 % away from "
            f"input scale x weight scale = {wanted[at]:.4g}",
        )


# -- the forms --------------------------------------------------------------------------------


def _conv(graph: OrtGraph, operation: Operation, rule: FusionRule) -> str:
    inputs = _inputs(graph, operation, None)
    x, w, y = _types(graph, operation, (*inputs[:2], *output_quantizers(graph, operation)))
    _refuse_bits((x, w), rule)
    _same_type(x, y)
    _refuse_int8(x)
    if len(inputs) > 2:
        _check_bias_type(graph, inputs[2])
        _check_bias_scale(graph, inputs)
    return rule.kernel


def _gemm(graph: OrtGraph, operation: Operation, rule: FusionRule) -> str:
    inputs = _inputs(graph, operation, None)
    out = output_quantizers(graph, operation, needed=False)
    x, w, *results = _types(graph, operation, (*inputs[:2], *out))
    _refuse_bits((x, w), rule)
    if x == INT8 != w:
        raise StaysFloat("int8-input", "its input is int8 and its weight is not")
    for y in results:
        _same_type(x, y)
    if not all(graph.is_scalar(q.given(1)) for q in (inputs[0], *out)):
        raise StaysFloat("per-channel", "its input or output has one scale per channel")
    for part, dq in (("input", inputs[0]), ("weight", inputs[1])):
        # A zero point added by onnxruntime is a scalar, which does not match several scales.
        if not dq.given(2) or graph.shape(dq.given(2)) != graph.shape(dq.given(1)):
            raise StaysFloat("no-zero-point", f"its {part} has no zero point")
    if len(inputs) > 2:
        for name in ("alpha", "beta"):
            factor = float(operation.attrs.get(name, 1.0))
            if factor != 1.0:
                raise StaysFloat("gemm-factor", f"it has a bias and {name} = {factor:.4g}")
        _check_bias_type(graph, inputs[2])
    return rule.kernel


def _matmul(graph: OrtGraph, operation: Operation, rule: FusionRule) -> str:
    kinds = _types(graph, operation, _inputs(graph, operation, None))
    _refuse_int8(kinds[0])
    _refuse_bits(kinds, rule)
    out = output_quantizers(graph, operation, needed=False)
    for y in _types(graph, operation, out):
        _same_type(kinds[0], y)
    return rule.kernel if out else "MatMulIntegerToFloat"


def _elementwise(graph: OrtGraph, operation: Operation, rule: FusionRule) -> str:
    inputs = _inputs(graph, operation, rule.activations)
    out = output_quantizers(graph, operation)
    kinds = _types(graph, operation, (*inputs, *out))
    for kind in kinds[1:]:
        _same_type(kinds[0], kind)
    _refuse_bits(kinds, rule)
    return rule.kernel


def _moves(graph: OrtGraph, operation: Operation, rule: FusionRule) -> str:
    mode = operation.attrs.get("mode", b"nearest")
    if operation.op == "Resize" and mode != b"nearest":
        raise StaysFloat("interpolates", f"it interpolates ({mode.decode()}), in float")
    (source,) = _inputs(graph, operation, 1)
    out = output_quantizers(graph, operation)
    kinds = _types(graph, operation, (source, *out))
    _refuse_bits(kinds, rule, four_bit=rule.sixteen_bit)
    for target, kind in zip(out, kinds[1:], strict=True):
        if kind != kinds[0] or not same_parameters(graph, source, target):
            raise StaysFloat("unequal-parameters", "its input and output scales or types differ")
    return rule.kernel


_FORMS = {
    "conv": _conv,
    "gemm": _gemm,
    "matmul": _matmul,
    "elementwise": _elementwise,
    "moves": _moves,
}
