"""Constant weights that a FakeQuantize reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.arrays.pieces import Index, assembled, blocks, is_large
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.edit import producer
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import is_constant
from onnxq.graph.dequantized import DequantizedValues, Values, loaded, unread
from onnxq.quant.qparams import Array, QParams, Role

_OPERATIONS = (
    *("Add", "Clip", "Concat", "Div", "Gather", "Max", "Min", "Mul", "Pad", "Pow", "Sub", "Where"),
    *("InstanceNormalization", "LayerNormalization", "PRelu"),
)
"""Operators that take a constant factor, addend or part of their result, and sum no products."""


def quantized_weights(model: Model) -> Iterator[tuple[gs.Node, QParams, Values]]:
    """Every FakeQuantize of a constant, with its parameters and the constant."""
    for node in model.nodes(FAKE_QUANTIZE):
        weight = unread(node.inputs[0])
        if weight is not None:
            yield node, params_of(node, role=Role.WEIGHT), weight


def quantized_values(tensor: gs.Tensor) -> Array | None:
    """The values of `tensor` if it is a quantized constant, maybe through Identity nodes."""
    node = producer(tensor, "Identity", FAKE_QUANTIZE)
    while node is not None and node.op == "Identity":
        node = producer(node.inputs[0], "Identity", FAKE_QUANTIZE)
    weight = None if node is None else unread(node.inputs[0])
    if node is None or weight is None:
        return None
    return loaded(on_grid(params_of(node), weight))


def is_operand(node: gs.Node) -> bool:
    """Whether `node` quantizes a constant that is not the weight of a layer.

    A factor, an addend or a table of embeddings takes the place of an activation: a target that
    has a grid for activations also uses it for such constants. It is the sums of products of a
    layer that need symmetric weights of 8 bits.
    """
    consumers = node.outputs[0].outputs
    return bool(
        is_constant(node.inputs[0])
        and consumers
        and all(consumer.op in _OPERATIONS and not domain_of(consumer) for consumer in consumers)
    )


def on_grid(params: QParams, weight: Values) -> Values:
    """`weight` rounded by its quantizer, in its own type; a value beyond that type becomes inf.

    Stored codes that already lie on the grid are returned as they are.
    """
    if isinstance(weight, DequantizedValues) and weight.lies_on(params):
        return weight
    with np.errstate(over="ignore"):
        return params.fake(loaded(weight), weight.dtype)


def clamp(params: QParams, weight: Values) -> tuple[Values, int]:
    """`weight` cut to the range of its grid, in its own type, and how many values that changes.

    No code changes. If no value does, the result is `weight` itself.
    """
    if isinstance(weight, DequantizedValues):
        if weight.lies_on(params):
            return weight, 0
        weight = weight.load()
    values, shape = weight, weight.shape

    def clamped(at: Index) -> Array:
        low, high = _ends(*params.block_of(shape, at), params, values.dtype)
        return np.clip(values[at], low, high).astype(values.dtype)

    def moved(at: Index, part: Array) -> int:
        own = values[at]
        return int(np.count_nonzero(part != own) - np.count_nonzero(own != own))

    if not is_large(shape):
        whole = (slice(None),) * len(shape)
        cut = clamped(whole)
        return cut, moved(whole, cut)
    changed = sum(moved(at, clamped(at)) for at in blocks(shape))
    if not changed:
        return weight, 0
    return assembled(shape, weight.dtype, map(clamped, blocks(shape))), changed


def _ends(
    scale: Array, zero_point: Array, params: QParams, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """The ends of the range in the weight's type, rounded outwards if the code would change."""
    assert params.lo is not None and params.hi is not None
    ends = []
    for code, outwards in ((params.lo, -np.inf), (params.hi, np.inf)):
        steps = code - zero_point
        with np.errstate(over="ignore"):  # a range beyond the type has no end there: inf
            end = (steps.astype(np.float32) * scale).astype(dtype)
            kept = np.rint(end.astype(np.float32) / scale) == steps
            ends.append(np.where(kept, end, np.nextafter(end, dtype.type(outwards))))
    return ends[0], ends[1]
