"""Runs a float model on data and keeps statistics of its tensors.

Samples are taken one at a time, so memory does not depend on their number. Work is divided by
the number of the sample: part i of n takes the samples i, i + n, i + 2n ... Whatever part a sample
is in, the merged statistics are the same, to the bit.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxq.calibration.inner_taps import expose
from onnxq.calibration.statistics import Statistics, fingerprint
from onnxq.calibration.tensor_statistics import Wanted
from onnxq.errors import LoadError, OptionError
from onnxq.graph import Model
from onnxq.quant.qparams import Array
from onnxq.running import sessions
from onnxq.running.samples import Data, Feed, samples

SAVE_SECONDS = 20.0
"""How often a run that can be resumed writes what it has."""


@dataclass(frozen=True)
class Part:
    """Which samples one run takes: every `of`-th, from number `index` on."""

    index: int = 0
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read 'I/N', counted from 1."""
        first, slash, last = text.partition("/")
        if slash and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last):
            return cls(int(first) - 1, int(last))
        raise OptionError(f"'{text}' is not a part of the data", fix="write it like 3/8")

    def __str__(self) -> str:
        return f"{self.index + 1}/{self.of}"


def observe(
    model: Model,
    wanted: Mapping[str, Wanted],
    data: Data,
    *,
    part: Part = Part(),  # noqa: B008 - a value that is never changed
    most: int | None = None,
    resume: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Statistics:
    """Statistics of the `wanted` tensors over the samples of `part`, `most` of all at most.

    `resume` is a file that receives what is known from time to time, and on an interrupt. If it
    exists, its samples are not run again.
    """
    if data is None:
        raise LoadError(
            "ranges of activations need data",
            fix="give typical inputs with --data: an .npz file, a folder of .npy or .npz files, or "
            "pictures; ranges from random inputs would be wrong",
        )
    found = Statistics.of(fingerprint(model), wanted)
    if resume is not None and resume.exists():
        earlier = Statistics.load(resume)
        empty = Statistics.of(earlier.model, found.wanted)
        if earlier.model != found.model or earlier.wanted != empty.wanted:
            raise LoadError(
                f"'{resume}' was made with another model or with other options",
                fix="remove the file to start anew",
            )
        found = earlier
    run = _Run(model, wanted)
    done = found.samples
    saved = time.monotonic()
    try:
        for number, feed in _share(run.feeds(data), part, most, done):
            progress(f"calibrating: sample {number + 1}")
            run.add(feed, number, found)
            found.samples += 1
            if resume is not None and time.monotonic() - saved > SAVE_SECONDS:
                found.save(resume)
                saved = time.monotonic()
    except KeyboardInterrupt:
        if resume is not None:
            found.save(resume)
        raise
    if resume is not None:
        found.save(resume)
    if not found.samples:
        raise LoadError(f"no sample is left for part {part} of the data", fix="make fewer parts")
    return found


def _share(
    feeds: Iterator[Feed], part: Part, most: int | None, done: int
) -> Iterator[tuple[int, Feed]]:
    numbered = enumerate(feeds if most is None else itertools.islice(feeds, most))
    own = ((number, feed) for number, feed in numbered if number % part.of == part.index)
    return itertools.islice(own, done, None)


class _Run:
    """A session that returns the wanted tensors."""

    def __init__(self, model: Model, wanted: Mapping[str, Wanted]) -> None:
        inputs = {t.name for t in model.graph.inputs}
        inner = self._inner(model, set(wanted) - inputs)
        if inner:
            model = model.clone()
            self._alias = expose(model, inner)
            model.refresh()
        else:
            self._alias = {}
        self._taps = {n: self._alias.get(n, n) for n in wanted if n not in inputs}
        hidden = [n for n in inner if n not in self._alias]
        for name in hidden:
            del self._taps[name]
        self._session = sessions.session(model, "shipped", taps=self._taps.values())
        self._names = list(wanted)

    @staticmethod
    def _inner(model: Model, names: set[str]) -> list[str]:
        """Those of the tensors that are computed in a body."""
        return [
            tensor.name
            for node in model.nodes()
            if node.owner is not model.graph
            for tensor in node.outputs
            if tensor.name in names
        ]

    def feeds(self, data: Data) -> Iterator[Feed]:
        return samples(self._session, data)

    def add(self, feed: Feed, number: int, found: Statistics) -> None:
        for name, given in feed.items():
            if given.dtype.kind == "f" and not np.isfinite(given).all():
                raise LoadError(
                    f"sample {number + 1}: input '{name}' contains values that are not finite",
                    fix="remove the sample, or repair it",
                )
        values: dict[str, Array] = {}
        if self._taps:  # asked for nothing, a session returns everything
            values = self._session.run(feed, only=dict.fromkeys(self._taps.values()))
        for name in self._names:
            value: Array | None = feed.get(name, values.get(self._taps.get(name, "")))
            if value is None or (name in self._alias and not value.size):
                continue
            try:
                found.tensors[name].add(value)
            except FloatingPointError as error:
                raise LoadError(
                    f"sample {number + 1}: tensor '{name}' contains {error}, though all inputs are "
                    "finite: the float model itself overflows there",
                    fix="remove the sample, or look at the layer that produces the tensor",
                ) from error


def constant_tensors(statistics: Statistics) -> list[str]:
    """Tensors that had one and the same value in all samples: a sign of wrong data."""
    return [
        name
        for name, each in statistics.tensors.items()
        if each.extremes.count and each.histogram.low == each.histogram.high
    ]


__all__ = ["Part", "constant_tensors", "observe"]
