"""The first layers of a network, where float costs no time and keeps the input exact.

An input of 8 bits is often the largest single source of noise: pictures are smooth and filters look
for what is not. On a CPU a first layer of three channels gains little from integers, and its float
form saves the quantizer of the whole picture. So such layers stay float if that takes away a
tenth of all noise, and if they do less than a twentieth of all multiplications: then the network
is as fast (MobileNetV2: 0.34 of float with a float first layer, 0.36 without; ResNet-18, whose
first layer does 6.5 %: 0.39 and 0.27).
"""

from __future__ import annotations

import math

import onnx_graphsurgeon as gs

from onnxq.calibration.placing import Placing
from onnxq.calibration.sensitivity import selector_of
from onnxq.graph.constants import array

MOST = 0.05
"""Largest share of the multiplications of a network."""
WORTH = 0.9
"""What the noise must fall to, as a share of what it was."""


def cheap_first_layers(placing: Placing) -> tuple[str, ...]:
    """Selectors of the layers that read an input of the network, if they are cheap together.

    None if their cost is not known, because shapes are not.
    """
    layers = {id(node): node for node, _ in placing.weights}
    costs = {at: multiplications(node) for at, node in layers.items()}
    total = sum(cost for cost in costs.values() if cost is not None)
    firsts = [
        at
        for at, node in layers.items()
        if any(placing.walk.is_input(s) for s in placing.walk.sources(node.inputs[0]))
    ]
    cost = 0
    for at in firsts:
        own = costs[at]
        if own is None or at in placing.chosen:
            return ()
        cost += own
    if len(firsts) == len(layers) or cost > MOST * total:
        return ()
    return tuple(dict.fromkeys(selector_of(layers[at]) for at in firsts))


def multiplications(layer: gs.Node) -> int | None:
    """How many products a layer sums for one sample; dimensions without a number count once."""
    weight, shape = array(layer.inputs[1]), layer.outputs[0].shape
    if weight is None or shape is None:
        return None
    if layer.op == "Conv":
        places = shape[2:]
        if not all(isinstance(size, int) for size in places):
            return None
        return int(math.prod(weight.shape) * math.prod(places))
    rows = [size for size in shape[:-1] if isinstance(size, int)]
    return math.prod(weight.shape) * math.prod(rows)


__all__ = ["WORTH", "cheap_first_layers", "multiplications"]
