"""The first layers of a network, where float costs no time and keeps the input exact.

An input of 8 bits is often the largest single source of noise: pictures are smooth and filters look
for what is not. On a CPU a first layer of three channels gains little from integers, and its float
form saves the quantizer of the whole picture. So such layers stay float if that takes away a
tenth of all noise, and if they do less than a twentieth of all multiplications: then the network
is as fast (MobileNetV2: 0.34 of float with a float first layer, 0.36 without; ResNet-18, whose
first layer does 6.5 %: 0.39 and 0.27).
"""

from __future__ import annotations

from onnxq.calibration.layer_cost import multiplications
from onnxq.calibration.placing import Placing
from onnxq.calibration.sensitivity import selector_of

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


__all__ = ["WORTH", "cheap_first_layers"]
