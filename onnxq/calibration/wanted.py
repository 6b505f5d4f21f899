"""Which tensors are observed for a placement, and what is kept of each.

    places of quantizers            the distribution of values
    inputs of layers with weights   also the average of each channel, for the correction of biases
    inputs of matrix products       also its extremes and average square, for smoothing
    tensors to be equalized         the same
    places before a Softmax         also the least maximum of a row

Rules that keep layers float move a quantizer at most to the input of a layer, so these statistics
serve any rules.

The axis of a layer's input channels is 1 for convolutions and the last one for matrix products.
Before opset 13 a Softmax sums over all axes from `axis` on, which is one axis only if it is the
last.
"""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.calibration.even_channels.equalizing import groups, may_equalize
from onnxq.calibration.placing import Placing
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.observing.tensor_statistics import Wanted
from onnxq.operators.op_kind import kind_of

_CONVOLUTIONS = ("Conv", "ConvTranspose")


def wanted(
    placing: Placing, *, distribution: bool = True, channels: bool = True
) -> dict[str, Wanted]:
    """What to observe, by the names of tensors; all, or without what a recipe does not need."""
    tensors = [t for place in placing.places for t in place.tensors if array(t) is None]
    found = {tensor.name: Wanted(distribution=distribution) for tensor in tensors}
    for node in placing.model.nodes("Softmax"):
        axis = _softmax_axis(node, placing.model)
        name = node.inputs[0].name
        if name in found and axis is not None:
            found[name] = found[name].joined(Wanted(rows=axis, distribution=False))
    for node, tensor in placing.wanted_layers() if channels else ():
        window = kind_of(node) in _CONVOLUTIONS
        more = Wanted(1 if window else -1, distribution=distribution, spread=not window)
        found[tensor.name] = found.get(tensor.name, more).joined(more)
    if channels and may_equalize(placing.backend.scheme):
        more = Wanted(1, distribution=False, spread=True)
        for name in (name for group in groups(placing.model) for name in group.tensors):
            if name in found:
                found[name] = found[name].joined(more)
    return found


def _softmax_axis(node: gs.Node, model: Model) -> int | None:
    if model.opset >= 13:
        return int(node.attrs.get("axis", -1))
    axis, shape = int(node.attrs.get("axis", 1)), node.inputs[0].shape
    last = axis == -1 or (shape is not None and axis == len(shape) - 1)
    return -1 if last else None


__all__ = ["wanted"]
