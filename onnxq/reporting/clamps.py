"""Bounds that a network itself puts on a tensor, and that its quantizer now keeps.

For integer kernels a Relu or Clip is dropped if the range of the quantizer after it cuts off at
the same place. The tensor before it is then quantized as it is, and what the quantizer cuts off is
no loss: the network asked for it.
"""

from __future__ import annotations

import math

import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import Row
from onnxq.graph import Model
from onnxq.graph.constants import scalar
from onnxq.quant.qparams import QParams

Bounds = tuple[float, float]
NONE: Bounds = (-math.inf, math.inf)


def clamps_of(model: Model) -> dict[str, Bounds]:
    """The bounds of each tensor that only a Relu or Clip reads."""
    found: dict[str, Bounds] = {}
    for node in model.nodes("Relu", "Clip"):
        tensor = node.inputs[0]
        if len(tensor.outputs) == 1 and not model.is_output(tensor):
            found[str(tensor.name)] = _bounds(node)
    return found


def _bounds(node: gs.Node) -> Bounds:
    if node.op == "Relu":
        return 0.0, math.inf
    given = [scalar(t) for t in node.inputs[1:3]] + [None, None]
    stated = (node.attrs.get("min"), node.attrs.get("max"))  # before opset 11
    low, high = (
        end if end is not None else attribute for end, attribute in zip(given, stated, strict=False)
    )
    return (
        -math.inf if low is None else float(low),
        math.inf if high is None else float(high),
    )


def clamp_of(tensor: str, row: Row | None, known: dict[str, Bounds] | None) -> Bounds:
    """The bounds of a tensor, `known` from the trusted model.

    Without one, a range that ends at 0 is taken for that of a Relu.
    """
    if known is not None:
        return known.get(tensor, NONE)
    if not isinstance(row, QParams) or not row.is_per_tensor:
        return NONE
    low, high = (float(end) for end in row.range)
    return (0.0 if low == 0 else -math.inf, 0.0 if high == 0 else math.inf)


__all__ = ["NONE", "Bounds", "clamp_of", "clamps_of"]
