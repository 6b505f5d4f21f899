"""Recasts a quantized model: the quantizers of the target, with the ranges of the source.

For a source whose quantizers cannot be moved into the target's scheme one by one: the wrong
tensors are quantized, or two grids meet where the target has one. Its quantizers become ranges,
the float network beneath gets the quantizers that the target wants, and a weight keeps its grid if
the target has it.

A tensor that the source does not quantize takes a range that follows from others
(`onnxq.calibration.following_ranges`), or one from data. Without either it stays float. Ranges of
float8 reach far beyond the values of their tensors: with data, what occurs is their range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx_graphsurgeon as gs

from onnxq.analysis.placement_walk import Place
from onnxq.backend import Backend
from onnxq.calibration.following_ranges import follow, within_limits
from onnxq.calibration.placing import Placing
from onnxq.calibration.ranges import KnownRange, RangeTable
from onnxq.calibration.source_ranges import SourceRanges, source_ranges
from onnxq.canonical.fake_quantize import set_params
from onnxq.canonical.grid_fit import exact_fit
from onnxq.canonical.metadata_texts import FLOAT_LAYERS, RANGE_SOURCES, note_texts
from onnxq.canonical.quantized_weights import quantized_weights
from onnxq.edit import describe
from onnxq.errors import BackendError, OnnxqError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.graph.dequantized import loaded
from onnxq.observing.observe import observe
from onnxq.observing.range_methods import Method
from onnxq.observing.tensor_statistics import Wanted
from onnxq.pass_ import Trace
from onnxq.pipeline import Observer
from onnxq.proof.change import RECAST, Change
from onnxq.quant.qparams import QParams
from onnxq.quant.settings import LayerSettings, Rule, Settings
from onnxq.workflows.fit_to_backend import Fitted, fit
from passes.phases import CLEAN, FOLD, FOLD_SYMMETRIC

if TYPE_CHECKING:
    from onnxq.running.samples import Data

MOST_NOTES = 10
"""Tensors that stay float are listed up to so many."""
_DATA = "give typical inputs with --data"
_NO_RANGE = "no range is known for what it reads"
_SIMPLIFYING = {*CLEAN, *FOLD, *FOLD_SYMMETRIC}


@dataclass(frozen=True)
class Recast:
    """A model with the quantizers of its target."""

    fitted: Fitted
    sources: dict[str, str]
    """Where the range of each quantized tensor comes from."""
    notes: list[str]
    """What stays float although the target quantizes it."""
    constants: bool
    """Whether factors or addends that are no weights were quantized."""
    dropped: list[str]
    """Where the target has no quantizer, though the source has one."""


def recast(
    source: Model,
    backend: Backend,
    *observers: Observer,
    why: str,
    data: Data | None = None,
    constants: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Recast:
    """Give the canonical `source` the quantizers of `backend`, since of `why` its own do not do.

    `data` tells the ranges that the source does not. Without `constants`, factors and addends that
    are no weights stay float: some side files have no place for them.
    """
    progress("placing the target's own quantizers")
    trace = Trace(RECAST)
    trace.note(f"the quantizers of the source cannot be moved one by one: {why}")
    clean = tuple(step for step in backend.pipeline if step in _SIMPLIFYING)
    apart = source_ranges(source, clean, trace)
    settings = _settings(backend)
    placing = Placing(apart.model, backend, settings)
    ranges = within_limits(apart.model, apart.ranges)
    if data is not None:
        ranges = {name: known for name, known in ranges.items() if name not in apart.wide}
    ranges |= follow(apart.model, ranges)
    if data is not None:
        ranges |= _observed(placing, ranges, apart.ranges, data, progress)
    elif apart.wide:
        trace.note(f"{len(apart.wide)} ranges of float8 may be far wider than the values: {_DATA}")
    bare = _left_float(placing, ranges, apart)
    if bare:
        left = {n.outputs[0].name for n in bare}
        placing = Placing(apart.model, backend, settings, keep_float=left)
    fixed = [place for place in placing.places if _is_constant(place)]
    if not constants:
        placing.places = [place for place in placing.places if not _is_constant(place)]
    placed = placing.place(ranges)
    notes = [f"{describe(n)} stays float: {_NO_RANGE}" for n in bare]
    notes += placed.notes
    if not placed.sources:
        raise _nothing_placed(backend, bool(placing.places or bare), data is None)
    _restore_grids(placed.model, apart, backend, placed.sources)
    note_texts(placed.model, RANGE_SOURCES, placed.sources)
    note_texts(placed.model, FLOAT_LAYERS, {n.outputs[0].name: _NO_RANGE for n in bare})
    for tensor, text in placed.sources.items():
        trace.rewrote(f"'{tensor}'", text)
    for note in notes:
        trace.note(note)
    gone = [name for name in (*apart.ranges, *apart.grids) if name not in placed.sources]
    dropped = [_dropped(gone, backend)] if gone else []
    for note in dropped:
        trace.note(note)
    if notes:
        shown, more = notes[:MOST_NOTES], len(notes) - MOST_NOTES
        notes = [*shown, *([f"and {more} more"] if more > 0 else []), f"{_DATA} to quantize these"]
    made = fit(placed.model, backend, *observers, allow_requantize=True)
    further = made.change.traces if made.change is not None else ()
    change = Change(source, made.model, (trace, *further))
    fitted = replace(made, traces=(trace, *made.traces), change=change)
    return Recast(fitted, placed.sources, notes, constants and bool(fixed), dropped)


class NothingToPlace(BackendError):
    """The target quantizes none of the operators of a network."""


def _nothing_placed(backend: Backend, wanted: bool, blind: bool) -> BackendError:
    """The error for a network that would lose all its quantizers; `wanted`: it has places."""
    name, other = backend.name, "convert for a target that quantizes these operators"
    if not wanted:
        return NothingToPlace(f"{name} quantizes none of the operators of this network", fix=other)
    return BackendError(
        f"none of the quantizers of {name} has a range, so nothing would be quantized",
        fix=f"{_DATA}, or {other}" if blind else other,
    )


def _dropped(names: list[str], backend: Backend) -> str:
    some = ", ".join(f"'{name}'" for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    what = f"{len(names)} tensor{'s' if len(names) > 1 else ''}"
    return f"{backend.name} has no quantizer at {what} that the source quantizes: {some}{more}"


def _settings(backend: Backend) -> Settings:
    """8 bits for targets that train with fewer: nothing of the source was trained for fewer."""
    weight, activation = backend.scheme.weight, backend.scheme.activation
    change = LayerSettings(
        weight_bits=8 if weight.bits < 8 else None,
        activation_bits=8 if activation.bits < 8 else None,
    )
    return Settings() if change == LayerSettings() else Settings((Rule("re:(?s).*", change),))


def missing_ranges(error: OnnxqError, made: Recast) -> OnnxqError:
    """`error`, with the advice to give data if ranges are missing."""
    if not made.notes:
        return error
    fix = f"{_DATA}, since {made.notes[0]}; or {error.fix}"
    return type(error)(error.what, fix=fix)


def _is_constant(place: Place[gs.Node, gs.Tensor]) -> bool:
    return all(array(tensor) is not None for tensor in place.tensors)


def missing(placing: Placing, ranges: RangeTable) -> list[Place[gs.Node, gs.Tensor]]:
    """The places with a tensor whose range is not known."""
    return [
        place
        for place in placing.places
        if any(t.name not in ranges and array(t) is None for t in place.tensors)
    ]


def _left_float(placing: Placing, ranges: RangeTable, apart: SourceRanges) -> list[gs.Node]:
    """Operators that stay float, since no range is known for what they read.

    A weight that the source rounds is rounded nevertheless. Files with logarithmic grids have no
    place for some inputs of an operator only: there all of them stay float.
    """
    places = missing(placing, ranges)
    if placing.backend.scheme.weight.logarithmic:
        return list({id(op): op for place in places for op in place.asked_by}.values())
    bare = {t.name for place in places for t in place.tensors if t.name not in ranges}
    return [
        node
        for node, weight in placing.weights
        if weight.name not in apart.grids
        and any(t.name in bare for t in placing.walk.sources(node.inputs[0]))
    ]


def _observed(
    placing: Placing,
    ranges: RangeTable,
    limits: RangeTable,
    data: Data,
    progress: Callable[[str], None],
) -> RangeTable:
    """The ranges that are not known yet, from data; none goes beyond its own in `limits`."""
    places = missing(placing, ranges)
    wanted = {
        tensor.name: Wanted()
        for place in places
        for tensor in place.tensors
        if tensor.name not in ranges and array(tensor) is None
    }
    if not wanted:
        return {}
    seen = observe(placing.model, wanted, data, progress=progress)
    method, found = Method(), RangeTable()
    for place in places:
        spec = placing.activation_spec(place)
        for tensor in place.tensors:
            if tensor.name in wanted and seen.tensors[tensor.name].extremes.count:
                low, high = method.range(seen.tensors[tensor.name].seen, spec)
                text = f"{method} over {seen.samples} samples"
                limit = limits.get(tensor.name)
                if limit is not None:
                    low, high = max(low, float(limit.low)), min(high, float(limit.high))
                    text += f", within {limit.source}"
                found[tensor.name] = KnownRange.of(low, high, text)
    return found


def _restore_grids(
    model: Model, apart: SourceRanges, backend: Backend, sources: dict[str, str]
) -> None:
    """Let weights lie on the grids of the source, if the target has them."""
    for node, params, weight in quantized_weights(model):
        old = apart.grids.get(params.tensor)
        if old is None or not isinstance(old, QParams) or backend.scheme.weight.logarithmic:
            continue
        fit = exact_fit(old, backend.scheme.weight, values=loaded(weight))
        if fit is not None and fit.params.axis in (None, params.axis) and not fit.params.block:
            set_params(model, node, fit.params)
            sources[params.tensor] = f"the {old.qtype} grid of the source"


__all__ = ["Recast", "missing", "missing_ranges", "recast"]
