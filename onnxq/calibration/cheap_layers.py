r"""Layers that stay float because integers gain nothing there, and cost accuracy.

A layer takes so many products of numbers:

    Conv, Gemm, MatMul     results * inputs of each result
    ConvTranspose          inputs * results of each input

- Small layers, such as those on the pooled vector at the end of a network, are over before their
  quantizers are. Their inputs are few numbers that nothing averages: in a network that rates sound,
  the last 64 of them cost more accuracy than all convolutions.
- The first layers read data with a range of its own: in a spectrum with silence at -12 and speech
  between -3 and 3, speech has four tenths of the codes. Those on one channel take few products and
  write many results, which is the same work in float.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.calibration.placing import Placing
from onnxq.calibration.sensitivity import selector_of
from onnxq.edit import new_node, variable
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.op_kind import weight_of
from onnxq.running.samples import Feed
from onnxq.running.sessions import session

SMALL = 1 << 17
"""Most products of a small layer: some microseconds, as much as two quantizers take."""
SMALL_SHARE, FIRST_SHARE = 0.01, 0.02
"""Most products of a small layer and of a first one, as a share of those of all layers."""


def cheap_layers(placing: Placing, feed: Feed) -> list[str]:
    """The names of such layers, as rules select them; those that a rule is about are left out."""
    if not placing.backend.placement.float_if_cheap:
        return []
    layers = {id(node): node for node, _ in placing.weights}
    found = _products(placing.model, list(layers.values()), feed)
    whole = sum(found.values())
    first = _first_layers(placing.model, layers)
    return [
        selector_of(layers[key])
        for key, products in found.items()
        if key not in placing.chosen
        and (
            (key in first and products <= FIRST_SHARE * whole)
            or products <= min(SMALL, SMALL_SHARE * whole)
        )
    ]


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


def _products(model: Model, layers: list[gs.Node], feed: Feed) -> dict[int, int]:
    """The products of each layer of the main graph on one sample."""
    known = [node for node in layers if node.owner is model.graph]
    if not known:
        return {}
    copy = model.clone()
    tensors = {t.name: t for node in copy.nodes() for t in (*node.inputs, *node.outputs)}
    shapes = []
    for number, node in enumerate(known):
        name = (node.inputs[0] if node.op == "ConvTranspose" else node.outputs[0]).name
        made = variable(copy, f"onnxq.shape.{number}", like=None)
        made.dtype = np.dtype(np.int64)
        new_node(copy, "Shape", [tensors[name]], [made], name=made.name)
        shapes.append(made)
    copy.graph.outputs = shapes
    copy.refresh()
    seen = session(copy, "shipped").run(feed)
    found = {}
    for node, shape in zip(known, shapes, strict=True):
        weight = weight_of(node)
        values = None if weight is None else array(weight)
        if values is None:
            continue
        size = seen[shape.name]
        per_value = values.size // (size[-1] if node.op in ("MatMul", "Gemm") else values.shape[0])
        found[id(node)] = int(np.prod(size)) * int(per_value)
    return found


__all__ = ["cheap_layers"]
