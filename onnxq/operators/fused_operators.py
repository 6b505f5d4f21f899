"""The operators that onnxruntime's CPU provider fuses with the quantizers around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Form = Literal["conv", "matmul", "gemm", "elementwise", "moves"]
"""How the operands of an operator must be quantized; `reasons` has one function for each form."""


@dataclass(frozen=True)
class FusionRule:
    """The conditions under which onnxruntime runs one operator on codes."""

    kernel: str
    """The integer operator; '' if the operator itself runs on codes."""
    form: Form
    activations: int | None = None
    """How many inputs must come from DQ; None: all that are present."""
    sixteen_bit: bool = False
    least_version: int = 1
    """First version of the operator that is recognised."""


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
    **dict.fromkeys(
        ("DepthToSpace", "ReduceMax", "ReduceMin", "Resize"), FusionRule("", "moves", 1)
    ),
    **dict.fromkeys(
        (
            *("Expand", "Flatten", "Gather", "GatherElements", "Reshape"),
            *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
        ),
        FusionRule("", "moves", 1, sixteen_bit=True),
    ),
}
"""The operators that onnxruntime's CPU provider can run on codes; all others compute in float."""
