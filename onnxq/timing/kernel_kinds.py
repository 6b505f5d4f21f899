"""What the kernels of a session compute with.

* integer: an integer operator (QLinearConv, QGemm, MatMulInteger ...), which computes on codes.
* moves: any other operator from codes to codes (Transpose, MaxPool, Clip on uint8).
* conversion: QuantizeLinear and its kin, between codes and floats.
* float: everything else with a float result, kernels with stored codes as weights included.
* other: shapes, indices, masks.

Types are those of the tensors that flowed, as onnxruntime's profile names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from onnxq.operators.integer_operators import DYNAMIC, QOPERATORS, SUMS

Kind: TypeAlias = Literal["integer", "moves", "conversion", "float", "other"]

CONVERSIONS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")

INTEGER = frozenset(
    (
        *QOPERATORS,
        *SUMS,
        *(op.rpartition("::")[2] for op in DYNAMIC if op not in CONVERSIONS),
        *("MatMulIntegerToFloat", "QAttention", "QEmbedLayerNormalization", "QLinearConvTranspose"),
    )
)
"""Integer operators by type: no domain has a float operator of the same name."""

_CODES = ("int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2")


def is_float_type(name: str) -> bool:
    """Whether onnxruntime's name of a type is that of real numbers."""
    return name.startswith(("float", "double", "bfloat"))


def kind_of(op: str, inputs: Sequence[str], outputs: Sequence[str]) -> Kind:
    """The kind of an operator, given the types of its inputs and outputs."""
    if op in CONVERSIONS:
        return "conversion"
    if op in INTEGER:
        return "integer"
    if any(map(is_float_type, outputs)):
        return "float"
    if any(kind in _CODES for kind in inputs) and any(kind in _CODES for kind in outputs):
        return "moves"
    return "other"
