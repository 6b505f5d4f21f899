"""Which tensors are observed, and what is kept of each."""

from __future__ import annotations

from onnxq.calibration.placing import Placing
from onnxq.calibration.tensor_statistics import Wanted
from onnxq.graph.constants import array
from onnxq.operators.op_kind import kind_of


def wanted(placing: Placing) -> dict[str, Wanted]:
    """What the ranges, the smoothing and the bias correction of these places need."""
    found: dict[str, Wanted] = {}

    def want(name: str, what: Wanted) -> None:
        found[name] = found[name].joined(what) if name in found else what

    for place in placing.places:
        for tensor in place.tensors:
            if array(tensor) is not None:
                continue
            want(tensor.name, Wanted())
            for node in tensor.outputs:
                if node.op == "Softmax":
                    want(tensor.name, Wanted(rows=int(node.attrs.get("axis", -1))))
    for node, tensor in placing.wanted_layers():
        want(tensor.name, Wanted(channels=-1 if kind_of(node) == "Linear" else 1))
    return found


__all__ = ["wanted"]
