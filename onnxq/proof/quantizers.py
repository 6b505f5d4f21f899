"""The quantizers of a graph that work on activations, with their grids.

A quantizer is a FakeQuantize, or a QuantizeLinear with the DequantizeLinear nodes after it. Codes
of a narrower range are clamped in between: QuantizeLinear, Clip, DequantizeLinear is a quantizer,
too. Left out are those of constants (weights), those whose scale is computed, and those with float
codes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx

from onnxq.operators.traits import MOVES
from onnxq.proof.step_size import Steps, StepSize, attribute
from onnxq.proof.verify import varying
from onnxq.quant.qparams import Array
from onnxq.quant.qtypes import QTYPES
from onnxq.running.sessions import OpenModel

_NATIVE = ("int8", "uint8", "int16", "uint16")
"""Types of codes that numpy has."""
_PASSED_BY = MOVES | {"Clip", "Relu"}


@dataclass(frozen=True, eq=False)
class Quantizer:
    """One quantizer: y = (clamp(round(x / scale) + zero_point, lo, hi) - zero_point) * scale."""

    read: str
    """The tensor that it rounds."""
    made: str
    """What it makes: codes (QuantizeLinear) or values (FakeQuantize)."""
    values: tuple[str, ...]
    """The tensors with its values."""
    step: StepSize
    zero_point: Array
    lo: int
    hi: int
    op: str
    node: str
    """What computes the tensor that it rounds: the kernel, with a Relu or such behind it."""

    @property
    def ends(self) -> tuple[Array, Array]:
        """The lowest and the highest value on the grid, one or one per channel."""
        scale, zero = self.step.scale, self.zero_point.astype(np.float64)
        zero = zero.reshape(scale.shape) if zero.size == scale.size else zero.reshape(())
        return (self.lo - zero) * scale, (self.hi - zero) * scale

    def before(self, values: Array) -> Array:
        """What it rounds, in steps, clamped to the grid: x / scale + zero_point."""
        scale, zero = self._along(values)
        return np.clip(values.astype(np.float64) / scale + zero, self.lo, self.hi)

    def codes(self, values: Array) -> Array:
        """The codes of values on the grid, in steps as well; of codes those codes."""
        if values.dtype.kind in "iu":
            return values.astype(np.float64)
        scale, zero = self._along(values)
        return values.astype(np.float64) / scale + zero

    def _along(self, values: Array) -> tuple[Array, Array]:
        scale = self.step.along(values.shape)
        zero = self.zero_point.astype(np.float64)
        return scale, zero.reshape(scale.shape) if zero.size == scale.size else zero.reshape(())


def quantizers(model: OpenModel) -> list[Quantizer]:
    """The quantizers of activations, in the order of the graph."""
    graph, steps = model.proto.graph, Steps(model)
    alive = varying(graph)
    producers = {name: node for node in graph.node for name in node.output if name}
    readers: dict[str, list[str]] = {}
    clips: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input:
            readers.setdefault(node.input[0], []).append(node.output[0])
        elif node.op_type == "Clip" and node.input:
            clips.setdefault(node.input[0], []).append(node)
    found = []
    for node in graph.node:
        fake = (node.domain, node.op_type) == ("onnxq", "FakeQuantize")
        if not (fake or node.op_type == "QuantizeLinear") or node.input[0] not in alive:
            continue
        (made,) = node.output
        grid = _grid(node, steps, fake)
        if grid is None:
            continue
        kernel = _kernel(node, producers)
        values = (made,) if fake else tuple(readers.get(made, ()))
        if values:
            found.append(Quantizer(node.input[0], made, values, *grid, *kernel))
        for clip in () if fake else clips.get(made, ()):
            ends, values = _clamped(clip, steps, *grid[2:]), tuple(readers.get(clip.output[0], ()))
            if ends is not None and values:
                step = replace(grid[0], bits=(ends[1] - ends[0]).bit_length())
                narrow = step, grid[1], *ends
                found.append(Quantizer(node.input[0], clip.output[0], values, *narrow, *kernel))
    return found


def _clamped(clip: onnx.NodeProto, steps: Steps, lo: int, hi: int) -> tuple[int, int] | None:
    """The lowest and highest code that a Clip leaves; None if its bounds are no constants."""
    ends = [lo, hi]
    for at, name in enumerate(clip.input[1:3]):
        bound = steps.constant(name) if name else None
        if name and (bound is None or bound.size != 1):
            return None
        if bound is not None:
            ends[at] = int(bound.item())
    low, high = max(lo, ends[0]), min(hi, ends[1])
    return (low, high) if low < high else None


def _grid(
    node: onnx.NodeProto, steps: Steps, fake: bool
) -> tuple[StepSize, Array, int, int] | None:
    """The grid of a quantizer: step, zero point, lowest and highest code."""
    if len(node.input) < 2 or attribute(node, "block_size", 0):
        return None
    scale = steps.constant(node.input[1])
    zero = steps.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if zero is None and len(node.input) > 2 and node.input[2]:
        return None
    kind = QTYPES.get("uint8" if zero is None else zero.dtype.name)
    if scale is None or not scale.size or kind is None or kind.floating:
        return None
    if not fake and kind.name not in _NATIVE:
        return None
    lo = attribute(node, "quant_min", kind.lo) if fake else kind.lo
    hi = attribute(node, "quant_max", kind.hi) if fake else kind.hi
    scale = scale.astype(np.float64)
    scale = scale.reshape(()) if scale.size == 1 else scale
    if not np.all(np.isfinite(scale) & (scale > 0)):
        return None
    bits = int(hi - lo).bit_length()
    step = StepSize(scale, attribute(node, "axis", 1), bits=bits)
    return step, np.zeros(()) if zero is None else zero, lo, hi


def _kernel(node: onnx.NodeProto, producers: dict[str, onnx.NodeProto]) -> tuple[str, str]:
    """Operator and name of the node whose result is rounded."""
    nearest = producers.get(node.input[0])
    if nearest is None:
        return "", f"the input '{node.input[0]}'"
    found = nearest
    while found.op_type in _PASSED_BY:
        before = producers.get(found.input[0])
        if before is None or before.op_type in ("DequantizeLinear", "FakeQuantize"):
            found = nearest
            break
        found = before
    return found.op_type, found.name or found.output[0]
