"""Which tensors of a float graph want a range and have none, by the rules of a `Placement`.

A range may be where the rules put it, or further down where only values are moved in between
(rounding after a Reshape is rounding before it) or where the operators in between run inside the
layer. What a layer hands to its own BatchNormalization is gone once that is folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from onnxq.analysis.quantizer_places import QuantizerPlaces
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.edit import describe, producer, read_by, users
from onnxq.graph import Model
from onnxq.operators.op_kind import kind_of
from onnxq.operators.placement import Placement
from onnxq.operators.traits import WEIGHTED
from onnxq.pipeline import Pipeline
from onnxq.quant.qparams import Reader
from passes.remove_fake_quant import RemoveFakeQuant

LINEAR = Placement(inputs=WEIGHTED | {"MatMul"})
"""The rule for every target: layers that multiply read codes."""


@dataclass(frozen=True)
class Need:
    """A tensor that wants a range, and why."""

    tensor: str
    rule: str
    layer: gs.Node | None = None
    """The layer whose weight it is; None for activations."""

    @property
    def weight(self) -> bool:
        """Whether it is a weight."""
        return self.layer is not None


def missing_ranges(
    model: Model,
    placement: Placement,
    has: Callable[[str], bool],
    serves: Callable[[str, Reader], bool] = lambda tensor, reader: True,
) -> Iterator[Need]:
    """What wants a range and has none, each tensor once; `has` tells which tensors have one.

    `serves` tells whether the range of a weight is for a reader: others read it as it is.
    """
    if model.nodes(*QUANTIZERS):
        # Places are those of the float graph; its tensors have the names that tables use.
        model = Pipeline(RemoveFakeQuant()).run(model).model
    places = QuantizerPlaces(model, placement)
    seen: set[int] = set()
    for node, weight in places.weights():
        index = next(i for i, tensor in enumerate(node.inputs) if tensor is weight)
        ranged = has(weight.name) and serves(weight.name, read_by(node, index))
        if not ranged and id(weight) not in seen:
            seen.add(id(weight))
            yield Need(weight.name, f"the weight of {describe(node)}", node)
    below = _ranges_below(model, placement, has)
    for place in places.activations():
        for tensor in place.tensors:
            if not has(tensor.name) and id(tensor) not in below and not _folds_away(tensor):
                yield Need(tensor.name, place.rule)


def _ranges_below(model: Model, placement: Placement, has: Callable[[str], bool]) -> set[int]:
    """Tensors all of whose readers move them, or run inside their layer, to where a range is."""
    through = placement.moves | placement.absorbed
    found: set[int] = set()
    nodes = model.nodes()
    made = [t for node in reversed(nodes) for t in node.outputs]
    for tensor in (*made, *model.graph.inputs):
        if has(tensor.name):
            found.add(id(tensor))
            continue
        read = users(tensor)
        if (
            read
            and not model.is_output(tensor)
            and all(kind_of(n) in through and id(n.outputs[0]) in found for n, _ in read)
        ):
            found.add(id(tensor))
    return found


def _folds_away(tensor: gs.Tensor) -> bool:
    """Whether only a BatchNormalization reads what a layer makes."""
    maker = producer(tensor)
    if maker is None or kind_of(maker) not in WEIGHTED:
        return False
    read = users(tensor)
    return bool(read) and all(kind_of(node) == "BatchNormalization" for node, _ in read)
