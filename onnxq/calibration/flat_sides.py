"""Ranges without what a sigmoid flattens.

    sigmoid(-12) = 6e-6 = 1 - sigmoid(12),     SiLU(x) = x * sigmoid(x),     SiLU(-12) = -7e-5

Trained networks go down to -100 before a SiLU, and a range that covers this leaves a sixth of the
codes for what is seen of x. With an end at -12, the sigmoid of all that is cut off has the code 0,
as before: cutting adds no error of its own. To cut more would add one, the same for all these
values, and errors that are the same add up in the next sum.
"""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.calibration.ranges import KnownRange
from onnxq.edit import only_reader, users
from onnxq.graph import Model

FLAT = 12.0
"""Beyond this a sigmoid is constant on 16 bits."""


def without_flat_sides(known: KnownRange, tensor: gs.Tensor, model: Model) -> KnownRange:
    """The range of a tensor, cut where the sigmoid that is all that sees it does not change."""
    cut = _flat_sides(tensor, model)
    if cut is None:
        return known
    low, high = (float(end.min()) for end in (known.low, known.high))
    name, upper = cut
    ends = max(low, -FLAT), min(high, FLAT) if upper else high
    if ends == (low, high):
        return known
    return KnownRange.of(*ends, f"{known.source}, without what {name} flattens")


def _flat_sides(tensor: gs.Tensor, model: Model) -> tuple[str, bool] | None:
    """The function that reads a tensor, and whether it is flat above too."""
    readers = {node.op: node for node, _ in users(tensor)}
    if model.is_output(tensor):
        return None
    if len(tensor.outputs) == 1 and "Sigmoid" in readers:
        return "Sigmoid", True
    if len(tensor.outputs) != 2 or readers.keys() != {"Sigmoid", "Mul"}:
        return None
    gate = readers["Sigmoid"].outputs[0]
    return ("SiLU", False) if only_reader(gate, readers["Mul"], model) else None


__all__ = ["FLAT", "without_flat_sides"]
