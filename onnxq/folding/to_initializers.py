"""Tensors turned into initializers of their graph, under the name they already have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import remove_all, set_inputs, users
from onnxq.graph import Model


def freeze(model: Model, nodes: Iterable[gs.Node], values: dict[int, Any]) -> None:
    """Remove `nodes`; each output whose `id` is in `values` becomes an initializer.

    The initializer belongs to the graph of the node: a name may mean something else in each body.
    An entry of `values` is an array, or the stored values of another constant, which are shared.
    """
    nodes = list(nodes)
    outputs = [(node, tensor) for node in nodes for tensor in node.outputs if id(tensor) in values]
    made: dict[int, gs.Constant] = {}
    moved: list[tuple[gs.Node, int, gs.Tensor]] = []
    remove_all(nodes)
    for node, tensor in outputs:
        frozen = values[id(tensor)]
        if isinstance(frozen, np.ndarray):
            frozen = np.asarray(frozen, order="C")
        constant = made[id(tensor)] = gs.Constant(tensor.name, frozen)
        constant.owner, constant.overridable = node.owner, False
        if getattr(tensor, "output_info", None) is not None:
            constant.output_info = tensor.output_info
        record = node.owner.record
        record.constants.append(constant)
        if getattr(node, "unread_at_load", False):
            record.unread_at_load.add(id(constant))
        moved += [(user, index, constant) for user, index in users(tensor)]
    set_inputs(moved)
    if not made:
        return
    model.require_ir(4, "initializers made from nodes are not graph inputs")
    for graph in model.graphs():
        for index, tensor in enumerate(graph.outputs):
            if id(tensor) in made:
                graph.outputs[index] = made[id(tensor)]
    model.refresh()
