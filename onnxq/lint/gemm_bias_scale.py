"""Gemm biases that onnxruntime adds with the wrong weight.

QGemm adds bias codes straight to sums of steps input scale * weight scale. onnxruntime checks that
the bias has that scale for Conv (to 1 %), but not for Gemm: it fuses, and the bias is off by the
ratio of the scales.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import describe, producer
from onnxq.graph.constants import array
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.quant.qparams import Array

_MOST = 1e-3


def _check(subject: Subject) -> Iterator[Finding]:
    for node in subject.model.nodes("Gemm"):
        predicted = subject.outlook.nodes.get(node.outputs[0].name)
        if predicted is None or predicted.kernel != "QGemm" or len(node.inputs) < 3:
            continue
        x, w, b = map(_scale, node.inputs[:3])
        if x is None or w is None or b is None:
            continue
        ratio = b / (x * w)
        worst = float(ratio[np.argmax(np.abs(ratio - 1))])
        if abs(worst - 1) > _MOST:
            yield Finding(
                "error",
                describe(node),
                GEMM_BIAS_SCALE.name,
                f"its bias scale is {worst:.4g} times input scale x weight scale; onnxruntime "
                "uses the codes unchanged, so the bias is wrong by that factor",
                "store the bias with scale = input scale x weight scale, or as float",
            )


def _scale(tensor: gs.Tensor) -> Array | None:
    node = producer(tensor, "DequantizeLinear")
    value = None if node is None else array(node.inputs[1])
    return None if value is None else value.astype(np.float64).reshape(-1)


GEMM_BIAS_SCALE = LintRule(
    "gemm-bias-scale", "Gemm biases that onnxruntime silently rescales", _check
)
