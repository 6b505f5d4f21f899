"""Finds the tensors of a float graph that need a range by the rules of a `Placement` and have none.

A range may be at the tensor that the rules name, or further down if the operators in between only
move values (rounding after a Reshape is rounding before it) or run inside the layer. A tensor
between a layer and its BatchNormalization needs none: it disappears when that is folded.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from onnxq.analysis.quantizer_places import QuantizerPlaces
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.edit import describe, producer, read_by, users
from onnxq.graph import Model
from onnxq.operators.float_guard import is_float_guard
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
    """A tensor that needs a range, and why."""

    tensor: str
    rule: str
    layer: gs.Node | None = None
    """The layer whose weight it is; None for activations."""


def missing_ranges(
    model: Model,
    placement: Placement,
    has: Callable[[str], bool],
    serves: Callable[[str, Reader], bool] = lambda tensor, reader: True,
    in_float: Container[str] = (),
) -> Iterator[Need]:
    """Tensors that need a range and have none, each once; `has` says whether a tensor has one.

    `serves` says whether the range of a weight is for a consumer: others read it unquantized.
    `in_float` are first outputs of layers that are float on purpose.
    """
    if model.nodes(*QUANTIZERS):
        # Placement works on the float graph; its tensors have the names that tables use.
        model = Pipeline(RemoveFakeQuant()).run(model).model
    left = [n for n in model.nodes() if n.outputs and n.outputs[0].name in in_float]
    places = QuantizerPlaces(model, placement, left)
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
            if is_float_guard(producer(tensor)):
                continue  # the layer is float on purpose
            if not has(tensor.name) and id(tensor) not in below and not _folds_away(tensor):
                yield Need(tensor.name, place.rule)


def _ranges_below(model: Model, placement: Placement, has: Callable[[str], bool]) -> set[int]:
    """Tensors with a range, or whose consumers all move them (or run inside their layer) to one."""
    through = placement.moves | placement.absorbed
    found: set[int] = set()
    made = [t for node in reversed(model.nodes()) for t in node.outputs]
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
    """Whether a layer produces the tensor and only a BatchNormalization reads it."""
    layer = producer(tensor)
    if layer is None or kind_of(layer) not in WEIGHTED or not tensor.outputs:
        return False
    return all(kind_of(node) == "BatchNormalization" for node in tensor.outputs)
