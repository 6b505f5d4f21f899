r"""Layers that stay float because integers gain nothing there, and cost accuracy.

- Small layers, such as those on the pooled vector at the end of a network, are over before their
  quantizers are. Their inputs are few numbers that nothing averages: in a network that rates sound,
  the last 64 of them cost more accuracy than all convolutions. Where codes would have to become
  floats for such a layer, and floats codes again, that must not take longer than it: with its four
  small depthwise convolutions in float, a MobileNet for 32 x 32 pixels took 1.25 of the time of the
  float network, and 0.97 without.
- The first layers read data with a range of its own: in a spectrum with silence at -12 and speech
  between -3 and 3, speech has four tenths of the codes. Those on one channel take few products and
  write many results, which is the same work in float.
- First convolutions on a few channels, of a few more products, are as fast in float where that was
  measured (MobileNetV2: 0.45 of the float network's time, 0.47 with all layers in integers;
  ResNet-18, whose first layer takes 6.5 % of all products: 0.43 and 0.30). They stay float if that
  takes away a tenth of all noise: pictures are smooth, and filters look for what is not.
"""

from __future__ import annotations

from itertools import accumulate

import onnx_graphsurgeon as gs

from onnxq.calibration.placing import Placing
from onnxq.calibration.trials.layer_cost import FloatTime, products_of, waits_for_memory
from onnxq.calibration.trials.sensitivity import selector_of
from onnxq.graph import Model
from onnxq.running.samples import Feed

SMALL = 1 << 17
"""Most products of a small layer: some microseconds, as much as two quantizers take."""
SMALL_SHARE, FIRST_SHARE = 0.01, 0.02
"""Most products of a small layer and of a first one, as a share of those of all layers."""
CHEAP_SHARE = 0.1
"""The same for all of them together: in a network of nothing but small layers, most are quantized,
as the user asked for."""
TRIED_SHARE = 0.05
"""The same for all first layers together that are tried in float."""
WORTH = 0.9
"""What the noise must fall to then, as a share of what it was."""


def cheap_layers(placing: Placing, feed: Feed) -> list[str]:
    """The names of such layers, as rules select them; those that a rule is about are left out."""
    if not placing.backend.placement.float_if_cheap:
        return []
    layers = {id(node): node for node, _ in placing.weights}
    time = FloatTime(placing, feed)
    found = time.counted
    whole = sum(found.values())
    first = _first_layers(placing.model, layers)
    small = min(SMALL, SMALL_SHARE * whole)
    cheap = [
        key
        for key, products in found.items()
        if key not in placing.chosen
        and (
            (key in first and products <= FIRST_SHARE * whole)
            or max(products, time.more(set(), {key})) <= small
        )
    ]
    cheapest = sorted(cheap, key=found.__getitem__)
    sums = dict(zip(cheapest, accumulate(found[key] for key in cheapest), strict=True))
    return [selector_of(layers[key]) for key in cheap if sums[key] <= CHEAP_SHARE * whole]


def affordable_first_layers(placing: Placing, feed: Feed) -> tuple[str, ...]:
    """The names of the first layers if they are worth a trial in float, or none."""
    if not placing.backend.placement.float_if_cheap:
        return ()
    layers = {id(node): node for node, _ in placing.weights}
    found = products_of(placing.model, list(layers.values()), feed)
    first = _first_layers(placing.model, layers)
    if len(first) == len(layers) or first & placing.chosen.keys() or not first <= found.keys():
        return ()
    if not all(waits_for_memory(layers[key]) for key in first):
        return ()
    if sum(found[key] for key in first) > TRIED_SHARE * sum(found.values()):
        return ()
    return tuple(dict.fromkeys(selector_of(layers[key]) for key in layers if key in first))


def _first_layers(model: Model, layers: dict[int, gs.Node]) -> set[int]:
    """The layers before which there is no other."""
    after: set[int] = set()  # tensors that a layer has had a part in
    first = set()
    for node in model.nodes():
        is_after = any(id(tensor) in after for tensor in node.inputs)
        if id(node) in layers and not is_after:
            first.add(id(node))
        if is_after or id(node) in layers:
            after.update(map(id, node.outputs))
    return first


__all__ = ["WORTH", "affordable_first_layers", "cheap_layers"]
