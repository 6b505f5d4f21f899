"""Constant weights that stand in front of a FakeQuantize."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.constants import array
from onnxq.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from onnxq.qparams import Array, QParams, Role


def quantized_weights(model: Model) -> Iterator[tuple[gs.Node, QParams, Array]]:
    """Every FakeQuantize of a constant, with its parameters and the constant."""
    for node in model.nodes(FAKE_QUANTIZE):
        weight = array(node.inputs[0])
        if weight is not None:
            yield node, params_of(node, role=Role.WEIGHT), weight


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
