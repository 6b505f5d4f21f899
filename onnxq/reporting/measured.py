"""What running a model shows: its tensors' values, and how far they are from those of another one.

One pass over the samples. Of every tensor sums and histograms are kept, so memory does not grow
with the number of samples. The model runs in the reference session: what the graph means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxq.analysis.quantizer_places import QuantizerPlaces
from onnxq.backend import Backend
from onnxq.canonical.quantizers import QUANTIZERS, is_quantizer
from onnxq.edit import producer
from onnxq.errors import OnnxqError
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.observing.tensor_statistics import TensorStatistics, Wanted
from onnxq.proof.difference import TensorDiff
from onnxq.proof.judging import ANYTHING
from onnxq.proof.trusted import Running, Trusted
from onnxq.proof.verify import Report, Values, compare, shared_tensors
from onnxq.reporting.channel_gains import ChannelGains
from onnxq.running.records import Data
from onnxq.running.samples import Feed, given_samples
from onnxq.running.sessions import ModelSource, open_model

Progress = Callable[[str], None]


@dataclass(frozen=True)
class LayerError:
    """How far one tensor is from its twin."""

    tensor: str
    sqnr: float
    """In dB; infinite if there is no difference."""
    largest: float
    unit: str
    """The unit of `largest`: steps, or relative to the largest magnitude."""
    rescaled: bool = False
    """Whether its channels have other factors than those of the twin, which do not count."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; infinities become None."""
        infinite = [k for k, v in vars(self).items() if isinstance(v, float) and math.isinf(v)]
        return vars(self) | dict.fromkeys(infinite)


@dataclass(frozen=True)
class Measured:
    """What one pass over the samples shows."""

    samples: int = 0
    random: bool = False
    """Whether the inputs were random ones."""
    report: Report | None = None
    """The comparison; None if there is nothing to compare with."""
    errors: Mapping[str, LayerError] = field(default_factory=dict)
    """The shared tensors, by name, in the order of the trusted model."""
    seen: Mapping[str, TensorStatistics] = field(default_factory=dict)
    """The values of the tensors that were watched, by name."""
    notes: tuple[str, ...] = ()
    refusal: tuple[str, str] | None = None
    """Why a model could not be run, and the next step."""


def quantized_activations(model: Model) -> dict[str, str]:
    """The tensors of the main graph that a canonical model quantizes, each with its float name.

    An output of the network keeps its name: what its quantizer reads has another one.
    """
    found: dict[str, str] = {}
    for node in model.nodes(*QUANTIZERS):
        x, y = node.inputs[0], node.outputs[0]
        if node.owner is not model.graph or is_constant(x):
            continue
        source = producer(x)
        if source is None or not is_quantizer(source):
            found[str(x.name)] = str(y.name if model.is_output(y) else x.name)
    return found


def placed_activations(model: Model, plain: Model, backend: Backend) -> dict[str, str]:
    """The tensors of the main graph that a backend would quantize, by their names.

    For a model that quantizes no activation: a float one, or one with quantized weights only.
    `plain` is the network beneath its quantizers.
    """
    places = QuantizerPlaces(plain, backend.placement).activations()
    tensors = (tensor for place in places for tensor in place.tensors if not is_constant(tensor))
    inner = {str(t.name) for n in model.graph.nodes for t in n.outputs}
    inner |= {str(t.name) for t in model.graph.inputs}
    return {str(t.name): str(t.name) for t in tensors if t.name in inner}


def measure(
    model: Model,
    against: ModelSource | None,
    data: Data,
    *,
    watched: Iterable[str] = (),
    most: int | None = None,
    count: int = 4,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Measured:
    """Run a canonical model on `data`, beside `against` if there is one.

    Of the `watched` tensors the values are kept. Without data, `count` random samples are compared
    and no values are kept: what random inputs cause says nothing about ranges. Without either
    there is nothing to run.
    """
    if data is None and against is None:
        return Measured()
    seen = _Seen(() if data is None else watched, model)
    opened = open_model(model)

    def feeds() -> Iterator[Feed]:
        for sample in given_samples(trusted.session.inputs, data, most=most):
            progress(f"running sample {sample.number + 1}")
            yield sample.feed

    given = None if data is None else feeds()
    if against is None:
        trusted = Trusted(opened, given, taps=seen.taps)
        refusal = _refusal(trusted)
        if refusal is not None:
            return Measured(refusal=refusal)
        samples = 0
        for feed, values in trusted.results():
            seen.add({**feed, **values})
            samples += 1
        return Measured(samples, seen=seen.found, notes=seen.notes())
    first = open_model(against)
    shared = shared_tensors((first, opened))
    trusted = Trusted(first, given, count=count, seed=seed, taps=shared)
    other = Running(opened, taps=dict.fromkeys([*shared, *seen.taps]))
    refusal = _refusal(trusted) or _refusal(other)
    if refusal is not None:
        return Measured(refusal=refusal)
    gains = {name: ChannelGains() for name in shared}

    def watch(a: Values, b: Values) -> None:
        seen.add(b)
        for name, sums in gains.items():
            if name in a and name in b:
                sums.add(a[name], b[name])

    report = compare(trusted, other, ANYTHING, shared, watch=watch)
    found = {diff.name: diff for diff in (*report.layers, *report.outputs)}
    errors = {name: _error(diff, gains.get(name)) for name, diff in found.items()}
    return Measured(report.samples, data is None, report, errors, seen.found, seen.notes())


def _refusal(running: Running) -> tuple[str, str] | None:
    """Why onnxruntime does not load a model: a report can do without, but not without a word."""
    try:
        _ = running.session
    except OnnxqError as error:
        return error.what, error.fix
    return None


def _error(diff: TensorDiff, gains: ChannelGains | None) -> LayerError:
    beside = None if gains is None else gains.sqnr
    sqnr = diff.sqnr if beside is None else beside
    return LayerError(diff.name, sqnr, diff.max, diff.unit, beside is not None)


class _Seen:
    """Statistics of the watched tensors; those that are not finite are left out."""

    def __init__(self, watched: Iterable[str], model: Model) -> None:
        names = list(watched)
        inputs = {t.name for t in model.graph.inputs}
        self.found = {name: TensorStatistics(Wanted()) for name in names}
        self.taps = [name for name in names if name not in inputs]
        self._broken: dict[str, str] = {}

    def add(self, values: Values) -> None:
        for name, statistics in list(self.found.items()):
            try:
                if name in values:
                    statistics.add(values[name])
            except FloatingPointError as error:
                self._broken[name] = str(error)
                del self.found[name]

    def notes(self) -> tuple[str, ...]:
        return tuple(f"'{name}' contains {what}" for name, what in self._broken.items())


__all__ = ["LayerError", "Measured", "measure", "placed_activations", "quantized_activations"]
