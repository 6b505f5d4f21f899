"""Facts about operators that several parts of onnxq ask for, each stated once.

Operators are named as ONNX names them, those of another domain as 'domain::Name'. Facts about
what one runtime or chip does with an operator stay with that runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_graphsurgeon as gs

from onnxq.graph import domain_of
from onnxq.graph.constants import array, scalar

QUANTIZE = (
    *("QuantizeLinear", "com.microsoft::QuantizeLinear"),
    *("com.amd.quark::ExtendedQuantizeLinear", "com.vai.quantize::VitisQuantizeLinear"),
)
"""Operators that make codes of real values, all with the inputs of ONNX's own."""
DEQUANTIZE = (
    *("DequantizeLinear", "com.microsoft::DequantizeLinear"),
    *("com.amd.quark::ExtendedDequantizeLinear", "com.vai.quantize::VitisDequantizeLinear"),
)
"""Their inverses."""

MOVES = frozenset(
    {
        *("DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("GlobalMaxPool", "Identity", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Split"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
"""Operators that move, select or duplicate the values of their first input.

Rounding before them is rounding after them. A maximum is one of the values, and rounding is
monotone. Dropout belongs here outside training; Pad and Resize may, see `moves`.
"""

WEIGHTED = frozenset({"Conv", "ConvTranspose", "Linear"})
"""Kinds of layers whose weight chips hold as codes (`onnxq.operators.op_kind`)."""

SEVERAL = frozenset({"Add", "Concat", "Div", "MatMul", "Max", "Mul", "Sub"})
"""Operators that read more than one activation."""

NEVER_NEGATIVE = frozenset({"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus"})
"""Operators whose results are never negative, whatever they read. So are those of a Clip from 0."""

KEEPS_SIGN = MOVES | {
    *("Add", "AveragePool", "Concat", "GlobalAveragePool", "Max", "Mul", "Pad", "ReduceMean"),
    *("ReduceSum", "Resize"),
}
"""Operators whose results are not negative where nothing they read is.

Except a Pad with another number than 0, and a cubic Resize, which overshoots.
"""


def moves(node: gs.Node) -> bool:
    """Whether `node` moves, selects or duplicates values and adds at most zeros.

    Zero lies on every grid.
    """
    if domain_of(node):
        return False
    if node.op == "Pad":
        return _pads_with_zero_or_values(node)
    if node.op == "Dropout":
        return len(node.inputs) < 3 or not node.inputs[2].name or _is_false(node.inputs[2])
    if node.op in ("Resize", "Upsample"):
        return picks_nearest(node.attrs)
    return node.op in MOVES


def moved_outputs(node: gs.Node) -> list[int]:
    """The numbers of the outputs in which a node that `moves` has put values.

    The second one of MaxPool holds indices, that of Dropout a mask.
    """
    count = len(node.outputs) if node.op == "Split" else 1
    return [i for i, tensor in enumerate(node.outputs[:count]) if tensor.name]


def picks_nearest(attrs: Mapping[str, Any]) -> bool:
    """Whether a Resize or Upsample of these attributes makes no values between, and no border."""
    border = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return attrs.get("mode", "nearest") == "nearest" and not border


def _pads_with_zero_or_values(node: gs.Node) -> bool:
    if node.attrs.get("mode", "constant") != "constant":
        return True
    if "value" in node.attrs:  # an attribute before opset 11
        return bool(node.attrs["value"] == 0)
    return len(node.inputs) < 3 or not node.inputs[2].name or scalar(node.inputs[2]) == 0


def _is_false(tensor: gs.Tensor) -> bool:
    value = array(tensor)
    return value is not None and not value.any()
