"""The real numbers that a model's inputs are meant to hold, told by their quantizers.

A quantizer with codes lo..hi represents (lo - zero_point) * scale .. (hi - zero_point) * scale.
What lies outside is clamped, and what is much smaller falls onto few codes, so inputs of that
range are the ones worth comparing on. Several quantizers of one input: the range that holds all.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx

from onnxq.operators.traits import MOVES
from onnxq.proof.step_size import Steps, attribute
from onnxq.running.sessions import OpenModel
from onnxq.storage.node_order import ordered

Ranges = Mapping[str, tuple[float, float]]
"""Lowest and highest value, by input."""


def input_ranges(model: OpenModel) -> Ranges:
    """The ranges of the inputs that are quantized, at once or behind ops that only move values."""
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
    scale = steps.constant(node.input[1])
    zero = np.zeros((), np.uint8)
    if len(node.input) > 2 and node.input[2]:
        given = steps.constant(node.input[2])
        if given is None:
            return None
        zero = given
    if scale is None or not scale.size or not zero.size or not _is_integer(zero.dtype):
        return None
    limits = ml_dtypes.iinfo(zero.dtype)  # type: ignore[no-untyped-call]
    lo = attribute(node, "quant_min", limits.min) if fake else limits.min
    hi = attribute(node, "quant_max", limits.max) if fake else limits.max
    scale, zero = scale.astype(np.float64), zero.astype(np.float64)
    if scale.shape != zero.shape and 1 not in (scale.size, zero.size):
        return None
    low, high = float(((lo - zero) * scale).min()), float(((hi - zero) * scale).max())
    return (low, high) if np.isfinite(low) and np.isfinite(high) and low < high else None


def _is_integer(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind in "iu" or dtype.name in ("int2", "uint2", "int4", "uint4")
