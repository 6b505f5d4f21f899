"""The operators that onnxruntime's CPU provider fuses with the quantizers around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Form = Literal["conv", "matmul", "gemm", "elementwise", "moves"]
"""How the operands of an operator must be quantized; `reasons` has a function for each."""


@dataclass(frozen=True)
class FusionRule:
    """What onnxruntime asks of one operator before it runs it on codes."""

    kernel: str
    """The integer operator; '' where the operator itself runs on codes."""
    form: Form
    activations: int | None = None
    """How many inputs must come from DQ; None: all that are given."""
    sixteen_bit: bool = False
    least_version: int = 1
    """First version of the operator that is recognised."""


_MOVES = FusionRule("", "moves", 1, sixteen_bit=True)

RULES: Mapping[str, FusionRule] = {
    "Conv": FusionRule("QLinearConv", "conv"),
    "Gemm": FusionRule("QGemm", "gemm"),
    "MatMul": FusionRule("QLinearMatMul", "matmul"),
    "Add": FusionRule("QLinearAdd", "elementwise"),
    "Mul": FusionRule("QLinearMul", "elementwise"),
    "Concat": FusionRule("QLinearConcat", "elementwise"),
    "AveragePool": FusionRule("QLinearAveragePool", "elementwise", 1),
    "GlobalAveragePool": FusionRule("QLinearGlobalAveragePool", "elementwise", 1),
    "LeakyRelu": FusionRule("QLinearLeakyRelu", "elementwise", 1),
    "Sigmoid": FusionRule("QLinearSigmoid", "elementwise", 1),
    "Softmax": FusionRule("QLinearSoftmax", "elementwise", 1),
    "Where": FusionRule("QLinearWhere", "elementwise", 2),
    "MaxPool": FusionRule("", "moves", 1, least_version=12),
    "ReduceMax": FusionRule("", "moves", 1),
    "ReduceMin": FusionRule("", "moves", 1),
    "Resize": FusionRule("", "moves", 1),
    "DepthToSpace": FusionRule("", "moves", 1),
    **dict.fromkeys(
        (
            *("Expand", "Flatten", "Gather", "GatherElements", "Reshape"),
            *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
        ),
        _MOVES,
    ),
}
"""The operators that onnxruntime's CPU provider can run on codes; all others compute in float."""
