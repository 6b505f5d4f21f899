"""The ranges of real numbers that a model's inputs are meant for, taken from their quantizers.

A quantizer with codes lo..hi represents (lo - zero_point) * scale .. (hi - zero_point) * scale.
Values outside are clamped, and much smaller ones use few codes, so models are compared on inputs of
that range. If an input has several quantizers, its range contains all of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from onnxq.operators.traits import MOVES
from onnxq.proof.step_size import Steps, attribute
from onnxq.quant.qtypes import QTYPES
from onnxq.running.sessions import OpenModel
from onnxq.storage.node_order import ordered

Ranges = Mapping[str, tuple[float, float]]
"""Lowest and highest value, by input."""


def input_ranges(model: OpenModel) -> Ranges:
    """The ranges of inputs that are quantized, at once or after ops that only move values."""
    graph, steps = model.proto.graph, Steps(model)
    origin = {i.name: i.name for i in graph.input}
    found: dict[str, tuple[float, float]] = {}
    for node in ordered(graph):
        name = origin.get(node.input[0]) if node.input else None
        if name is None:
            continue
        if node.op_type in MOVES | {"Pad"}:
            origin.update((output, name) for output in node.output)
            continue
        ends = _ends(node, steps)
        if ends is not None:
            low, high = found.get(name, ends)
            found[name] = min(low, ends[0]), max(high, ends[1])
    return found


def _ends(node: onnx.NodeProto, steps: Steps) -> tuple[float, float] | None:
    fake = (node.domain, node.op_type) == ("onnxq", "FakeQuantize")
    if (node.op_type != "QuantizeLinear" and not fake) or len(node.input) < 2:
        return None
    scale, zero = steps.constant(node.input[1]), np.zeros((), np.uint8)
    if len(node.input) > 2 and node.input[2]:
        given = steps.constant(node.input[2])
        if given is None:
            return None
        zero = given
    kind = QTYPES.get(zero.dtype.name)
    if scale is None or not scale.size or not zero.size or kind is None:
        return None
    lo = attribute(node, "quant_min", kind.lo) if fake else kind.lo
    hi = attribute(node, "quant_max", kind.hi) if fake else kind.hi
    scale, zero = scale.astype(np.float64), zero.astype(np.float64)
    if scale.shape != zero.shape and 1 not in (scale.size, zero.size):
        return None
    low, high = float(((lo - zero) * scale).min()), float(((hi - zero) * scale).max())
    return (low, high) if np.isfinite(low) and np.isfinite(high) and low < high else None
