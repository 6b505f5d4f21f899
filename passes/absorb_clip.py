"""Let a quantizer do the work of the Clip before it.

Quantizing is monotone, so with per-tensor scale s and zero point z

    FakeQuantize[lo..hi](Clip(x, a, b)) = FakeQuantize[lo'..hi'](x)
    lo' = max(lo, round(a / s) + z),   hi' = min(hi, round(b / s) + z)

exactly, for every x. Runtimes that fuse Conv with its quantizer then see no Clip in between.

Tools that quantize both before and after the Clip then leave two quantizers in a row. If both have
the same scale and the codes of the first reach at least as far, the second does its work as well:
rounding is the same, and the narrower range decides.

Targets that have no ranges narrower than a type need `whole`: a Clip whose bounds are within the
range stays. Its input then gets the same quantizer, so that the layer before it has one:

    FakeQuantize(Clip(x, a, b)) = FakeQuantize(Clip(FakeQuantize(x), a, b))

for every x, since rounding is monotone and the values on the grid stay where they are.

A Relu is a Clip from 0 up. Most runtimes fuse it, so it stays unless asked for. Only codes that
start at the zero point do its work and still use the whole range of their type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, make, params_of, set_params
from onnxq.edit import inputs_of, insert, only_reader, producer, set_input
from onnxq.graph import Model
from onnxq.graph.constants import is_constant, scalar
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams


@dataclass(frozen=True)
class AbsorbClip(Pass):
    """Remove a Clip (ReLU6 ...) before a quantizer by narrowing the quantizer's range."""

    name: ClassVar[str] = "absorb-clip"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    relu: bool = False
    """Whether to remove Relus as well, if the quantizer's codes start at its zero point."""
    whole: bool = False
    """Whether a Clip that would narrow the range stays, between two quantizers."""

    def run(self, model: Model, trace: Trace) -> None:
        ops = ("Clip", "Relu") if self.relu else ("Clip",)
        for node in model.nodes(FAKE_QUANTIZE):
            clip = producer(node.inputs[0], *ops)
            if clip is None or is_constant(node.inputs[0]):
                continue
            narrowed = _narrowed(node, clip, model)
            if isinstance(narrowed, str):
                trace.skip(clip, narrowed)
                continue
            given = params_of(node)
            if self.whole and (narrowed.lo, narrowed.hi) != (given.lo, given.hi):
                _quantize_before(clip, node, model, trace)
                continue
            set_input(node, 0, _source(clip, narrowed, model))
            if clip.op == "Clip":
                set_params(model, node, narrowed)
            trace.rewrote(clip, f"codes {narrowed.lo}..{narrowed.hi} have the same effect")


def _narrowed(node: gs.Node, clip: gs.Node, model: Model) -> QParams | str:
    """The quantizer's parameters with the range of `clip`, or why `clip` must stay."""
    if not only_reader(node.inputs[0], node, model):
        return "other consumers read it unquantized"
    params = params_of(node)
    if params.qtype.floating:
        return f"its quantizer always has the full range of {params.qtype}"
    if params.axis is not None:
        return "its quantizer has one scale per channel"
    zero = int(params.zero_point)
    if clip.op == "Relu":
        return params if params.lo == zero else "its quantizer has codes below zero"
    _, low, high = inputs_of(clip, 3)
    if any(end is not None and scalar(end) is None for end in (low, high)):
        return "its bounds are computed at run time"
    least, most = clip.attrs.get("min", scalar(low)), clip.attrs.get("max", scalar(high))
    lo = params.lo if least is None else int(params.quantize(least))
    hi = params.hi if most is None else int(params.quantize(most))
    assert lo is not None and hi is not None
    if not lo <= zero <= hi or lo >= hi:
        return "its bounds exclude zero, which a quantizer must represent"
    return params.with_(lo=lo, hi=hi)


def _quantize_before(clip: gs.Node, quantizer: gs.Node, model: Model, trace: Trace) -> None:
    """Give the input of a Clip that stays the quantizer of its output."""
    source = clip.inputs[0]
    if producer(source, FAKE_QUANTIZE) is not None:
        trace.skip(clip, "its bounds are within the range of the quantizers around it")
    elif producer(source) is None or not only_reader(source, clip, model):
        trace.skip(clip, "its bounds are within the range, and others read its input")
    else:
        params = params_of(quantizer, source.name)
        dtype = quantizer.inputs[1].dtype
        insert(model, source, lambda x, y, graph: make(model, x, y, params, graph, dtype=dtype))
        trace.rewrote(clip, f"'{source.name}' gets the quantizer of its output")


def _source(clip: gs.Node, params: QParams, model: Model) -> gs.Tensor:
    """The input of `clip`, or that of the quantizer before it if `params` make it redundant."""
    source = clip.inputs[0]
    first = producer(source, FAKE_QUANTIZE)
    if first is None or not only_reader(source, clip, model):
        return source
    given = params_of(first)
    if given.qtype.floating or given.axis is not None or given.scale != params.scale:
        return source
    (low, high), (least, most) = given.range, params.range
    return first.inputs[0] if low <= least and most <= high else source
