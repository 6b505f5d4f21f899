"""Small quantized models with one thing wrong each, and what lint says about them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto

from onnxq.graph import from_proto
from onnxq.lint.rule import Finding
from onnxq.workflows.lint_model import lint
from tests.models.zoo_build import Build, tensor_scale

UINT8, INT8 = TensorProto.UINT8, TensorProto.INT8


def found(proto: onnx.ModelProto, rule: str, backend: str = "onnxruntime") -> list[Finding]:
    """What `rule` finds in a model."""
    return [f for f in lint(from_proto(proto), backend).findings if f.rule == rule]


def where(findings: Iterable[Finding]) -> list[str]:
    return [f.where for f in findings]


def conv_net(
    *,
    weight_codes: int = 60,
    out: bool = True,
    bias: float | None = None,
    relu_zero: int = 0,
    opset: int = 17,
    kind: int = UINT8,
) -> onnx.ModelProto:
    """x -> Conv -> Relu, quantized; every weight has the same code."""
    b = Build(opset, seed=2)
    zero = 128 if kind == UINT8 else 0
    x = b.qdq(b.input("x", [1, 4, 6, 6]), 0.05, zero, kind)
    weight = b.stored(np.full((3, 4, 3, 3), weight_codes * 0.01, np.float32), 0.01)
    extra = [] if bias is None else [b.init(np.full(3, bias, np.float32), "bias")]
    y = b.op("Conv", x, weight, *extra, out="features")
    y = b.op("Relu", y, out="active")
    return b.model(b.qdq(y, 0.1, relu_zero, kind, out="y") if out else y)


def gemm_net(bias_ratio: float) -> onnx.ModelProto:
    """A Gemm whose bias scale is `bias_ratio` times what it must be."""
    b = Build(17, seed=3)
    x = b.qdq(b.input("x", [2, 6]), 0.1, 128, UINT8)
    value = b.weight_values(6, 5)
    scale = tensor_scale(value, 60)
    bias = b.bias32(b.random(5), np.float32(0.1 * scale * bias_ratio))
    y = b.op("Gemm", x, b.stored(value, scale), bias, out="logits")
    return b.model(b.qdq(y, 0.05, 128, UINT8))
