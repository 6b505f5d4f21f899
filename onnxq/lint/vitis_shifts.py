"""Shifts that the DPU does not have, and biases that it cannot add.

Scales are powers of two: with fix points f = -log2(scale) of input, weight, bias and output

    shift_cut  = f_in + f_w - f_out    sums to output codes        0 .. 16
    shift_bias = f_in + f_w - f_b      bias codes to sums          min(0, shift_cut - 16) .. 15

The compiler rejects a layer outside these limits, or moves its fix points, which changes the
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, is_fake_quantize, params_of
from onnxq.edit import describe, producer
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.operators.weight_axis import BIAS_INPUT, LINEAR_OPS

_FUNCTIONS = ("Relu", "Clip", "LeakyRelu", "PRelu")
_MOST_CUT = 16
_MOST_BIAS = 15


def _check(subject: Subject) -> Iterator[Finding]:
    for node in subject.canonical.nodes(*LINEAR_OPS):
        x, w = (fix_point(t) for t in node.inputs[:2])
        if x is None or w is None:
            continue
        out = _output(node)
        cut = None if out is None else x + w - out
        if cut is not None and not 0 <= cut <= _MOST_CUT:
            yield _finding(node, f"sums are shifted by {cut} bits, not 0..{_MOST_CUT}", "output")
        index = BIAS_INPUT.get(node.op)
        if index is None or len(node.inputs) <= index or not node.inputs[index].name:
            continue
        bias = fix_point(node.inputs[index])
        if bias is None:
            yield Finding(
                "warning",
                describe(node),
                VITIS_SHIFTS.name,
                "its bias is float: the DPU adds 8-bit codes, and the compiler chooses them",
                "quantize biases as well (train for vitis)",
            )
            continue
        least = 0 if cut is None else min(0, cut - _MOST_CUT)
        if not least <= x + w - bias <= _MOST_BIAS:
            yield _finding(
                node,
                f"its bias is shifted by {x + w - bias} bits, not {least}..{_MOST_BIAS}",
                "bias",
            )


def _finding(node: gs.Node, what: str, tensor: str) -> Finding:
    return Finding(
        "error",
        describe(node),
        VITIS_SHIFTS.name,
        f"{what}: the DPU does not support this",
        f"bring the scales of input, weight and {tensor} closer together and train again",
    )


def fix_point(tensor: gs.Tensor) -> int | None:
    """-log2 of the scale of a tensor; None unless it has one scale, a power of two."""
    quantizer = producer(tensor, FAKE_QUANTIZE)
    if quantizer is None:
        return None
    scale = params_of(quantizer).scale
    mantissa, exponent = np.frexp(scale)
    if scale.ndim or float(mantissa) != 0.5:
        return None
    return 1 - int(exponent)


def _output(node: gs.Node) -> int | None:
    """The fix point of a layer's output, after its activation function if it has one."""
    for _ in range(2):
        uses = node.outputs[0].outputs
        quantizers = [user for user in uses if is_fake_quantize(user)]
        if quantizers:
            return fix_point(quantizers[0].outputs[0])
        if len(uses) != 1 or uses[0].op not in _FUNCTIONS:
            return None
        node = uses[0]
    return None


VITIS_SHIFTS = LintRule(
    "vitis-shifts", "shifts that the DPU does not support, and float biases", _check
)
