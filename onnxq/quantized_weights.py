"""Constant weights that stand in front of a FakeQuantize."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.constants import array, is_constant
from onnxq.edit import producer
from onnxq.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model, domain_of
from onnxq.qparams import Array, QParams, Role

_OPERATIONS = (
    *("Add", "Clip", "Concat", "Div", "Gather", "Max", "Min", "Mul", "Pad", "Pow", "Sub", "Where"),
    *("InstanceNormalization", "LayerNormalization", "PRelu"),
)
"""Operators that take a constant factor, addend or part of their result, and sum no products."""


def quantized_weights(model: Model) -> Iterator[tuple[gs.Node, QParams, Array]]:
    """Every FakeQuantize of a constant, with its parameters and the constant."""
    for node in model.nodes(FAKE_QUANTIZE):
        weight = array(node.inputs[0])
        if weight is not None:
            yield node, params_of(node, role=Role.WEIGHT), weight


def quantized_values(tensor: gs.Tensor) -> Array | None:
    """What `tensor` holds where it is a constant behind its quantizer, and maybe Identity."""
    node = producer(tensor, "Identity", FAKE_QUANTIZE)
    while node is not None and node.op == "Identity":
        node = producer(node.inputs[0], "Identity", FAKE_QUANTIZE)
    weight = None if node is None else array(node.inputs[0])
    if node is None or weight is None:
        return None
    params = params_of(node)
    return params.dequantize(params.quantize(weight)).astype(weight.dtype)


def is_operand(node: gs.Node) -> bool:
    """Whether a quantizer is that of a constant which is no weight of a layer.

    A factor, an addend or a table of embeddings takes the place of an activation: a target that
    has a grid for activations computes with such constants on it as well. It is the sums of
    products of a layer that want symmetric weights of 8 bits.
    """
    readers = node.outputs[0].outputs
    return bool(
        is_constant(node.inputs[0])
        and readers
        and all(reader.op in _OPERATIONS and not domain_of(reader) for reader in readers)
    )


def clamp(params: QParams, weight: Array) -> Array:
    """`weight` cut to the range of its grid, in its own type; no code moves by that."""
    low, high = _ends(params, weight)
    return np.clip(weight, low, high).astype(weight.dtype)


def _ends(params: QParams, weight: Array) -> tuple[Array, Array]:
    """The ends of the range in the weight's type, rounded outwards where the code would move."""
    scale, zero_point = params.broadcast(weight.shape)
    assert params.lo is not None and params.hi is not None
    ends = []
    for code, outwards in ((params.lo, -np.inf), (params.hi, np.inf)):
        steps = code - zero_point
        with np.errstate(over="ignore"):  # a range beyond the type has no end there: inf
            end = (steps.astype(np.float32) * scale).astype(weight.dtype)
            kept = np.rint(end.astype(np.float32) / scale) == steps
            ends.append(np.where(kept, end, np.nextafter(end, weight.dtype.type(outwards))))
    return ends[0], ends[1]
