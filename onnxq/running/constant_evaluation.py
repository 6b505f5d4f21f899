"""Computes nodes whose inputs are all constant, in onnxruntime's reference session.

All nodes go into one session. If onnxruntime refuses it, the first and the second half are tried
in turn, down to the node at fault: a graph of n nodes with one such node takes about 2·log2(n)
sessions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import onnx_graphsurgeon as gs

from onnxq.errors import OnnxqError, UnsupportedModelError
from onnxq.graph import Model, domain_of, new_model
from onnxq.graph.constants import constant_value
from onnxq.running.sessions import reference
from onnxq.running.shape_inference import infer, static_bytes, weightless
from onnxq.storage.importer import decode_type
from onnxq.storage.tensors import SparseStoredValues, stored_size


def known_values(tensor: gs.Tensor) -> Any:
    """The stored values of an initializer or Constant node; None for other tensors."""
    if isinstance(tensor, gs.Constant):
        if getattr(tensor, "overridable", False):
            return None
        values = tensor._values
        return values.load() if isinstance(values, SparseStoredValues) else values
    node = tensor.inputs[0] if tensor.inputs else None
    if node is None or node.op != "Constant" or domain_of(node):
        return None
    whole = node.attrs.get("value")
    return whole._values if isinstance(whole, gs.Constant) else constant_value(node)


class Evaluator:
    """Values of constant tensors, by identity, and how to compute more of them.

    Attributes:
        values: the computed arrays, by `id` of the tensor.
        refused: nodes that onnxruntime could not compute, with its reason.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.values: dict[int, Any] = {}
        self.refused: list[tuple[gs.Node, str]] = []

    def lookup(self, tensor: gs.Tensor) -> Any:
        """The values of `tensor`, or None if they are not known (yet)."""
        found = self.values.get(id(tensor))
        return known_values(tensor) if found is None else found

    def sizes(self, nodes: Sequence[gs.Node]) -> dict[int, int]:
        """Bytes of the inputs and outputs of `nodes`, by `id`, as far as they are known."""
        small, twins = self._model(nodes)
        sizes: dict[str, int | None] = {}
        with contextlib.suppress(UnsupportedModelError):
            for info in infer(small.to_proto(weightless)).graph.value_info:
                sizes[info.name] = static_bytes(*decode_type(info))
        found = {
            key: stored_size(twin) if isinstance(twin, gs.Constant) else sizes.get(twin.name)
            for key, twin in twins.items()
        }
        return {key: size for key, size in found.items() if size is not None}

    def run(self, nodes: Sequence[gs.Node]) -> None:
        """Compute the outputs of `nodes` that others read; producers must come first."""
        inside = {id(node) for node in nodes}
        wanted = [
            tensor
            for node in nodes
            for tensor in node.outputs
            if self.model.is_output(tensor) or any(id(r) not in inside for r in tensor.outputs)
        ]
        if not wanted:
            return
        small, twins = self._model(nodes)
        small.graph.outputs = [twins[id(t)] for t in wanted]
        try:
            results = reference(small).run({})
        except OnnxqError as error:
            if len(nodes) == 1:
                self.refused.append((nodes[0], error.what))
                return
            half = len(nodes) // 2
            self.run(nodes[:half])
            self.run(self.computable(nodes[half:]))
            return
        for tensor in wanted:
            self.values[id(tensor)] = results[twins[id(tensor)].name]

    def computable(self, nodes: Sequence[gs.Node]) -> list[gs.Node]:
        """The `nodes` whose inputs are known or computed by others of them."""
        made: set[int] = set()
        found = []
        for node in nodes:
            if all(not t.name or id(t) in made or self.lookup(t) is not None for t in node.inputs):
                made.update(id(t) for t in node.outputs)
                found.append(node)
        return found

    def _model(self, nodes: Sequence[gs.Node]) -> tuple[Model, dict[int, gs.Tensor]]:
        """A model of copies of `nodes` alone, and the copy of each tensor by its `id`.

        All names are new: tensors in different bodies may have the same name.
        """
        small = new_model("constants", self.model.opset, max(self.model.ir_version, 4))
        twins: dict[int, gs.Tensor] = {}

        def twin(tensor: gs.Tensor) -> gs.Tensor:
            if not tensor.name:
                return gs.Variable("")
            made = twins.get(id(tensor))
            if made is None:
                values = self.lookup(tensor)
                name = f"t{len(twins)}"
                made = gs.Variable(name) if values is None else gs.Constant(name, values)
                twins[id(tensor)] = made
            return made

        for node in nodes:
            inputs, outputs = [twin(t) for t in node.inputs], [twin(t) for t in node.outputs]
            copy = gs.Node(node.op, "", dict(node.attrs), inputs, outputs)
            copy.source, copy.owner = getattr(node, "source", None), small.graph
            small.graph.nodes.append(copy)
        small.refresh()
        return small, twins
