"""Facts about operators that several parts of onnxq need, each stated once.

Operators are named as in ONNX, those of another domain as 'domain::Name'. Facts about one runtime
or chip stay with that runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of
from onnxq.graph import domain_of
from onnxq.graph.constants import scalar

QUANTIZE = (
    *("QuantizeLinear", "com.microsoft::QuantizeLinear"),
    *("com.amd.quark::ExtendedQuantizeLinear", "com.vai.quantize::VitisQuantizeLinear"),
)
"""Operators that turn real values into codes, all with the inputs of ONNX's own."""
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
"""Operators whose results are never negative, whatever they read; nor are those of a Clip at 0."""

KEEPS_SIGN = MOVES | {
    *("Add", "AveragePool", "Concat", "GlobalAveragePool", "Max", "Mul", "Pad", "ReduceMean"),
    *("ReduceSum", "Resize"),
}
"""Operators whose results are not negative if nothing they read is.

Exceptions are a Pad with a number other than 0, and a cubic Resize, which overshoots.
"""


def moves(node: gs.Node) -> bool:
    """Whether `node` moves, selects or duplicates values and adds at most zeros.

    Zero lies on every grid.
    """
    if domain_of(node):
        return False
    if node.op == "Pad" and node.attrs.get("mode", "constant") != "constant":
        return True
    if node.op in ("Pad", "Dropout"):
        # The number a Pad adds (an attribute before opset 11); whether a Dropout drops values.
        given = inputs_of(node, 3)[2]
        return bool(node.attrs.get("value", 0) == 0) and (given is None or scalar(given) == 0)
    if node.op in ("Resize", "Upsample"):
        return picks_nearest(node.attrs)
    return node.op in MOVES


def moved_outputs(node: gs.Node) -> list[int]:
    """The indices of the outputs that contain the values of a node that `moves`.

    The second output of MaxPool contains indices, that of Dropout a mask.
    """
    count = len(node.outputs) if node.op == "Split" else 1
    return [i for i, tensor in enumerate(node.outputs[:count]) if tensor.name]


def picks_nearest(attrs: Mapping[str, Any]) -> bool:
    """Whether a Resize or Upsample with these attributes neither interpolates nor adds a border."""
    border = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return attrs.get("mode", "nearest") == "nearest" and not border
