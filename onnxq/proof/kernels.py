"""Compares kernel by kernel: tells a fault from rounding that a network amplifies.

Two runs of one network round sums at other places. A value between two codes may become either, and
a deep network with random or badly conditioned weights makes more of every such flip: at its output
they may be tens of steps apart although nothing is wrong. So the outputs alone do not tell.

Cut at its quantizers, a network is a list of short segments: what one of them reads are codes, what
it makes are codes. Let `other` be the run to judge, with codes k_i at quantizer i. The trusted
model, cut at the same quantizers, reads these codes, and computes for every quantizer what it would
round, x_i = f_i(k_j, ...), from *the other run's own inputs*. If `other` is right,

    |k_i - x_i| <= 1/2 step, up to the rounding of float sums or of an int32 bias

holds for each i by itself, whatever the depth, and no difference is passed on. By induction from
the input this says that `other` is a run of the trusted network in which each sum was rounded
nearly exactly: what is left at the outputs is what the network makes of such rounding. And where it
does not hold, that very kernel is wrong. It takes one more run of each model: `other` runs as it is
(with its codes as further outputs, which hinders no fusion), and the trusted model once, in pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import onnx
from onnx import helper

from onnxq.proof.bias_rounding import bias_rounding
from onnxq.proof.difference import RunningDiff, Tolerance
from onnxq.proof.kernel_difference import KernelDiff, RunningKernel
from onnxq.proof.quantizers import Quantizer, quantizers
from onnxq.proof.trusted import Running, Trusted
from onnxq.proof.verify import pair_inputs, pair_outputs
from onnxq.quant.qparams import Array
from onnxq.running import sessions as runtime
from onnxq.running.samples import cast
from onnxq.running.sessions import OpenModel, Session

_FLOATS = 0.01
"""Rounding of float sums in one kernel, in steps of 8 bits: finer grids resolve it."""
_APPROXIMATE = {"Softmax": 1.0}
"""Integer kernels that are less precise, in steps: that of Softmax multiplies by 1 / scale without
its fraction, which is 254 for 1/255."""
_RELATIVE = 1e-3
_LABELS = 0.01
"""Most that outputs without a quantizer may differ, computed from the same codes."""


@dataclass(frozen=True)
class _Point:
    """A tensor at which both models are cut: codes, or values."""

    grid: Quantizer
    """The quantizer of the trusted model that makes it."""
    name: str

    @property
    def given(self) -> str:
        """The input that its readers read instead."""
        return f"{self.name}.given"


def kernels(trusted: Trusted, other: Running, limit: float) -> list[KernelDiff]:
    """The kernels of `other` one by one, on the samples of `trusted`; `limit` is in 8-bit steps.

    In its reference session `other` is judged by the trusted model: they are cut at quantizers
    whose values have the same names. In an optimised session it is judged by what its own model
    means, and cut at all codes: that this is what the trusted model means is another proof.
    Nothing is returned if there is no quantizer to cut at, or if the session falls back.
    """
    judge = trusted.model if other.kind == "reference" else other.model
    points = list(_points(judge, other.model))
    if not points:
        return []
    telling = runtime.session(other.model, other.kind, [p.name for p in points])
    limits = {p.name: limit for p in points}
    if judge is not trusted.model:
        biases = bias_rounding(judge)
        for p in points:
            least = max(_APPROXIMATE.get(p.grid.op, 0.0), biases.get(p.grid.made, 0.0))
            limits[p.name] = max(limit, least)
    found = {p.name: _running(p, limits[p.name]) for p in points}
    covered = {value for p in points for value in (p.name, *p.grid.values)}
    outputs = {
        pair: RunningDiff(*pair, None)
        for pair in pair_outputs(judge.proto.graph, other.graph)
        if pair[0] not in covered
    }
    parts: Session | None = None
    renamed = pair_inputs(trusted.session, telling)
    for feed, _ in trusted.results():
        twin = {spec.name: cast("input", spec, feed[name]) for name, spec in renamed.items()}
        told = telling.run(twin)
        own = feed if judge is trusted.model else twin
        given = {p.given: told[p.name] for p in points}
        parts = parts or _in_parts(judge, points, given)
        made = parts.run({**own, **given})
        known = {**own, **made, **{p.name: told[p.name] for p in points}}
        for p in points:
            found[p.name].add(p.grid.codes(told[p.name]), p.grid.before(known[p.grid.read]))
        for (name, at), diff in outputs.items():
            diff.add(made[name], told[at])
    if telling.kind != other.kind:
        return []
    ends = (_unrounded(diff, name, judge) for (name, _), diff in outputs.items())
    return [*(each.result() for each in found.values()), *ends]


def _points(judge: OpenModel, other: OpenModel) -> Iterator[_Point]:
    """Where to cut: at codes if both are one model, else at values with the same name."""
    found = quantizers(judge)
    if other is judge:
        yield from (_Point(each, each.made) for each in found)
        return
    twins = {value for each in quantizers(other) for value in each.values}
    yield from (_Point(each, value) for each in found for value in each.values if value in twins)


def _running(point: _Point, limit: float) -> RunningKernel:
    grid = point.grid
    limit = max(limit, _FLOATS * 2.0 ** (grid.step.bits - 8))
    return RunningKernel(grid.values[0], grid.op, grid.node, limit)


def _in_parts(judge: OpenModel, points: list[_Point], given: Mapping[str, Array]) -> Session:
    """The model without optimisation, cut at the points: it returns all that is rounded there."""
    cut = cut_at(judge, {p.name: p.given for p in points}, given)
    made = {name for node in cut.proto.graph.node for name in node.output}
    names = {p.name for p in points}
    reads = dict.fromkeys(p.grid.read for p in points)
    return runtime.reference(cut, [r for r in reads if r in made and r not in names])


def cut_at(model: OpenModel, given: Mapping[str, str], values: Mapping[str, Array]) -> OpenModel:
    """The model with new inputs, whose names and values are given, in place of some tensors.

    What computes these tensors stays. Its weights stay where they are: a session of it needs taps,
    or it would read the model's file.
    """
    cut = onnx.ModelProto()
    cut.CopyFrom(model.proto)
    for node in cut.graph.node:
        node.input[:] = [given.get(name, name) for name in node.input]
    fixed = all(_is_fixed(i) for i in model.proto.graph.input)
    for name in given.values():
        value = values[name]
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        shape = value.shape if fixed else [None] * value.ndim
        cut.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
    return replace(model, proto=cut)


def _is_fixed(info: onnx.ValueInfoProto) -> bool:
    dims = info.type.tensor_type.shape.dim
    return info.type.tensor_type.HasField("shape") and all(d.dim_value > 0 for d in dims)


def _unrounded(diff: RunningDiff, name: str, judge: OpenModel) -> KernelDiff:
    """The difference of an output that no quantizer rounds."""
    producers = {out: n for n in judge.proto.graph.node for out in n.output}
    node = producers.get(name)
    about = (node.op_type, node.name or name) if node is not None else ("", "the input")
    made = diff.result(*about, Tolerance())
    if made.nonfinite:
        return KernelDiff(name, *about, "relative", math.inf, _RELATIVE, made.moved, made.count)
    if made.unit == "exact":
        return KernelDiff(name, *about, "share", made.moved, _LABELS, made.moved, made.count)
    off = made.max if made.max * made.size > made.tolerance.max_absolute else 0.0
    return KernelDiff(name, *about, "relative", off, _RELATIVE, made.moved, made.count)
