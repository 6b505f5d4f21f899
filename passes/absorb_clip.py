"""Let a quantizer do the work of the Clip in front of it.

Quantizing is monotone, so with per-tensor scale s and zero point z

    FakeQuantize[lo..hi](Clip(x, a, b)) = FakeQuantize[lo'..hi'](x)
    lo' = max(lo, round(a / s) + z),   hi' = min(hi, round(b / s) + z)

exactly, for every x. Runtimes that fuse Conv with its quantizer then see no Clip in between.

Tools that quantize on both sides of the Clip leave two quantizers in a row then. If both have one
scale and the codes of the first reach at least as far, the second does its work as well: rounding
is the same, and the inner cut is the one that counts.

A Relu is a Clip from 0 up. Most runtimes fuse it, so it stays unless asked for; and only codes that
start at the zero point do its work without leaving a range that is not that of their type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of, set_params
from onnxq.edit import inputs_of, only_reader, producer, set_input
from onnxq.graph import Model
from onnxq.graph.constants import is_constant, scalar
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams


@dataclass(frozen=True)
class AbsorbClip(Pass):
    """Remove a Clip (ReLU6 ...) in front of a quantizer by narrowing the quantizer's range."""

    name: ClassVar[str] = "absorb-clip"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    relu: bool = False
    """Whether to remove Relus as well, if the quantizer's codes start at its zero point."""

    def run(self, model: Model, trace: Trace) -> None:
        ops = ("Clip", "Relu") if self.relu else ("Clip",)
        for node in model.nodes(FAKE_QUANTIZE):
            clip = producer(node.inputs[0], *ops)
            if clip is None or is_constant(node.inputs[0]):
                continue
            if not only_reader(node.inputs[0], node, model):
                trace.skip(clip, "other consumers read it unquantized")
                continue
            params = params_of(node)
            if params.qtype.floating:
                trace.skip(clip, f"its quantizer always has the full range of {params.qtype}")
                continue
            if params.axis is not None:
                trace.skip(clip, "its quantizer has one scale per channel")
                continue
            if clip.op == "Relu":
                if int(params.zero_point) != params.lo:
                    trace.skip(clip, "its quantizer has codes below zero")
                    continue
                set_input(node, 0, _source(clip, params, model))
                trace.rewrote(clip, f"codes from {params.lo} up have the same effect")
                continue
            bounds: list[float | None] = []
            for key, tensor in zip(("min", "max"), inputs_of(clip, 3)[1:], strict=True):
                value = clip.attrs.get(key) if tensor is None else scalar(tensor)
                if tensor is not None and value is None:
                    break
                bounds.append(value)
            if len(bounds) < 2:
                trace.skip(clip, "its bounds are computed at run time")
                continue
            lo, hi = params.lo, params.hi
            if bounds[0] is not None:
                lo = int(params.quantize(bounds[0]))
            if bounds[1] is not None:
                hi = int(params.quantize(bounds[1]))
            assert lo is not None and hi is not None
            zero = int(params.zero_point)
            if not lo <= zero <= hi or lo >= hi:
                trace.skip(clip, "its bounds exclude zero, which a quantizer must represent")
                continue
            narrowed = params.with_(lo=lo, hi=hi)
            set_params(model, node, narrowed)
            set_input(node, 0, _source(clip, narrowed, model))
            trace.rewrote(clip, f"range {params.lo}..{params.hi} -> {lo}..{hi}")


def _source(clip: gs.Node, params: QParams, model: Model) -> gs.Tensor:
    """What `clip` cuts; without its quantizer, where one of `params` behind it makes that idle."""
    source = clip.inputs[0]
    first = producer(source, FAKE_QUANTIZE)
    if first is None or not only_reader(source, clip, model):
        return source
    given = params_of(first)
    if given.qtype.floating or given.axis is not None or given.scale != params.scale:
        return source
    reach, inner = (_reach(grid) for grid in (given, params))
    return first.inputs[0] if reach[0] <= inner[0] and inner[1] <= reach[1] else source


def _reach(grid: QParams) -> tuple[int, int]:
    """Lowest and highest value in steps."""
    assert grid.lo is not None and grid.hi is not None
    zero = int(grid.zero_point)
    return grid.lo - zero, grid.hi - zero
