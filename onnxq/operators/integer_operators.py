"""The integer operators of ONNX and onnxruntime: positions of their inputs, and their float twins.

Each computes a float operator on dequantized operands and quantizes the result:

    y = quantize(op(dequantize(a), dequantize(b), ..., bias), y_scale, y_zero_point)

An operand is three inputs in a row: codes, scale, zero point. onnxruntime's own domain repeats
the operators of ONNX with an attribute `channels_last`; its layout domains imply it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MICROSOFT = "com.microsoft"
CHANNELS_LAST_DOMAINS = ("com.microsoft.nhwc", "com.ms.internal.nhwc")
BLOCKED_DOMAIN = "com.microsoft.nchwc"
"""Weights there are stored in blocks as wide as a vector register of the CPU that wrote them."""


@dataclass(frozen=True)
class QOperator:
    """The positions of an integer operator's inputs, and the float operator it stands for.

    Attributes:
        name: the operator's type.
        twin: the float operator.
        operands: position of the codes of each operand; scale and zero point follow.
        result: position of the result's scale, its zero point follows.
        optional_result: the result is float if the scale is left out.
        bias: position of the int32 bias; its scale is that of the products.
        plain: positions of inputs that the float operator takes as they are, before the operands.
        repeated: the operand may come any number of times (Concat).
        pools: the operator has `channels_last` and slides over the dimensions in between.
        drops: attributes the float operator does not have.
        standard: ONNX has it in its own domain.
        needs_zero_points: each operand and the result have the type of their own zero point; else
            all have one type, and a missing zero point means 0 in that type.
    """

    name: str
    twin: str
    operands: tuple[int, ...]
    result: int
    optional_result: bool = False
    bias: int | None = None
    plain: tuple[int, ...] = ()
    repeated: bool = False
    pools: bool = False
    drops: tuple[str, ...] = ()
    standard: bool = False
    needs_zero_points: bool = False

    def positions(self, count: int) -> tuple[int, ...]:
        """Position of the codes of each operand of a node with `count` inputs."""
        if self.repeated:
            return tuple(range(self.operands[0], count, 3))
        return self.operands


_ALL = (
    QOperator(
        *("QLinearConv", "Conv", (0, 3), 6),
        bias=8,
        pools=True,
        standard=True,
        needs_zero_points=True,
    ),
    QOperator("QLinearMatMul", "MatMul", (0, 3), 6, standard=True, needs_zero_points=True),
    QOperator("QGemm", "Gemm", (0, 3), 7, optional_result=True, bias=6, needs_zero_points=True),
    QOperator("QLinearAdd", "Add", (0, 3), 6),
    QOperator("QLinearMul", "Mul", (0, 3), 6),
    QOperator("QLinearConcat", "Concat", (2,), 0, repeated=True),
    QOperator("QLinearAveragePool", "AveragePool", (0,), 3, pools=True),
    QOperator("QLinearGlobalAveragePool", "GlobalAveragePool", (0,), 3, pools=True),
    QOperator("QLinearLeakyRelu", "LeakyRelu", (0,), 3),
    QOperator("QLinearSigmoid", "Sigmoid", (0,), 3),
    QOperator("QLinearSoftmax", "Softmax", (0,), 3, drops=("opset",)),
    QOperator("QLinearReduceMean", "ReduceMean", (0,), 3),
    QOperator("QLinearWhere", "Where", (1, 4), 7, plain=(0,)),
)

QOPERATORS: Mapping[str, QOperator] = {q.name: q for q in _ALL}
"""Operators with codes in and, mostly, codes out, by type."""

SUMS: Mapping[str, str] = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
"""Operators that make int32 sums of products of codes; the nodes after them scale the sums."""

DYNAMIC = (
    "DynamicQuantizeLinear",
    *(f"{MICROSOFT}::{op}" for op in ("DynamicQuantizeMatMul", "DynamicQuantizeLSTM")),
)
"""Operators that compute scales from the data at run time."""


def find(domain: str, op: str) -> QOperator | None:
    """The integer operator of that domain ('' is ONNX's own) and type."""
    found = QOPERATORS.get(op)
    if found is None:
        return None
    known = domain in (MICROSOFT, *CHANNELS_LAST_DOMAINS) or (domain == "" and found.standard)
    return found if known else None


def spellings(op: str) -> tuple[str, ...]:
    """The names by which `Model.nodes` finds an operator of the table, one for each domain."""
    own = (op,) if QOPERATORS[op].standard else ()
    return (*own, *(f"{d}::{op}" for d in (MICROSOFT, *CHANNELS_LAST_DOMAINS)))


def is_channels_last(domain: str, attributes: Mapping[str, object]) -> bool:
    """Whether the channels of a pooling operator are its last dimension."""
    return domain in CHANNELS_LAST_DOMAINS or bool(attributes.get("channels_last", 0))
