"""Runs a float model on data and keeps statistics of its tensors.

A few samples are in memory at a time (see `side_by_side`), whatever their number, and they are
taken in one after another. Work is divided by the number of the sample: part i of n takes the
samples i, i + n, i + 2n ... Whatever part a sample is in, the merged statistics are the same, to
the bit.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxq.errors import LoadError, OptionError, VerifyError
from onnxq.graph import Model
from onnxq.observing.inner_taps import Shown, expose
from onnxq.observing.side_by_side import Division, available_cores, in_order
from onnxq.observing.statistics import Statistics, fingerprint
from onnxq.observing.taken import Taken
from onnxq.observing.tensor_statistics import Wanted
from onnxq.quant.qparams import Array
from onnxq.running import sessions
from onnxq.running.samples import Data, Feed, Sample, files_of, given_samples, is_float

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

    def divided(self, number: int) -> list[Part]:
        """The same samples in so many parts."""
        return [Part(self.index + self.of * at, self.of * number) for at in range(number)]


def observe(
    model: Model,
    wanted: Mapping[str, Wanted],
    data: Data,
    *,
    part: Part = Part(),  # noqa: B008 - a value that is never changed
    most: int | None = None,
    resume: Path | None = None,
    may_be_empty: bool = False,
    cores: int | None = None,
    of_model: bool = True,
    progress: Callable[[str], None] = lambda _: None,
    watch: Callable[[Feed], None] = lambda _: None,
) -> Statistics:
    """Statistics of the `wanted` tensors over the samples of `part`, `most` of all at most.

    `resume` is a file that receives what is known from time to time, and on an interrupt. If it
    exists, its samples are not run again. The caller removes it. Whoever merges parts allows
    one to be empty (`may_be_empty`). All cores work, or as many as `cores`. `watch` is called with
    every sample that was run. Statistics that are neither saved nor merged need not know their
    model (`of_model`): its fingerprint takes as long as reading all weights.
    """
    check_given(data)
    found = Statistics.of(fingerprint(model) if of_model else "", wanted)
    found.unfinished = name_of_run(data, part, most)
    if resume is not None and resume.exists():
        found = earlier_run(resume, found)
    run = _Run(model, wanted, cores or available_cores())
    if not isinstance(data, Iterator):
        found.taken = run.taken(data, part)
    saved = time.monotonic()
    samples = itertools.islice(run.samples(data, part, most), found.samples, None)
    # An interrupt reaches the main thread only, so a sample is taken in as a whole or not at all.
    with ThreadPoolExecutor(run.cores, "calibrating") as workers:
        try:
            for sample, values in in_order(run.values, samples, workers, lambda: run.at_once):
                progress(f"calibrating: sample {sample.number + 1}")
                workers.submit(run.add, sample, values, found).result()
                del values  # before the next sample is waited for
                if sample.number == 0:
                    found.taken = Taken.of(sample.feed, part.index, part.of)
                watch(sample.feed)
                if resume is not None and time.monotonic() - saved > SAVE_SECONDS:
                    found.save(resume)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            workers.shutdown(cancel_futures=True)
            if resume is not None:
                found.save(resume)
            raise
    if not found.samples and not may_be_empty:
        raise LoadError(f"no sample is left for part {part} of the data", fix="make fewer parts")
    if resume is not None:
        found.save(resume)
    found.unfinished = ""
    return found


def check_given(data: Data) -> None:
    """Raise if there is no data."""
    if data is None:
        raise LoadError(
            "ranges of activations need data",
            fix="give typical inputs (--data; in Python data): an .npz file, a folder of .npy or "
            ".npz files, or pictures; ranges from random inputs would be wrong",
        )


def earlier_run(resume: Path, begun: Statistics) -> Statistics:
    """What an interrupted run left, if it was the same one."""
    earlier = Statistics.load(resume)
    if earlier.model != begun.model or earlier.wanted != begun.wanted:
        raise LoadError(
            f"'{resume}' was made with another model or with other options",
            fix="remove the file to start anew",
        )
    if earlier.unfinished != begun.unfinished:
        raise LoadError(
            f"'{resume}' is of another run ({earlier.unfinished or 'a finished one'}; this one: "
            f"{begun.unfinished})",
            fix="remove the file to start anew, or give the data and the part of that run",
        )
    return earlier


def name_of_run(data: Data, part: Part, most: int | None) -> str:
    """Which samples a run takes. Files are told by their names and sizes, not by their folder."""
    digest = hashlib.sha256()
    for file in files_of(data):
        size = file.stat().st_size if file.is_file() else 0  # whatever reads it tells
        digest.update(f"{file.name}\0{size}\0".encode(errors="surrogateescape"))
    first = "all samples" if most is None else f"the first {most} samples"
    return f"part {part} of {first} of data {digest.hexdigest()[:8]}"


class _Run:
    """A session that returns the wanted tensors."""

    def __init__(self, model: Model, wanted: Mapping[str, Wanted], cores: int) -> None:
        inputs = {t.name for t in model.graph.inputs}
        computed = {t.name for node in model.graph.nodes for t in node.outputs}
        inner = [name for name in wanted if name not in inputs | computed]
        self._shown: dict[str, Shown] = {}
        if inner:
            model = model.clone()
            self._shown = expose(model, inner)
            model.refresh()
        self._taps = {name: name for name in wanted if name in computed}
        self._taps |= {name: shown.name for name, shown in self._shown.items()}
        self._names = list(wanted)
        self._model = model
        self.cores = cores
        self._threads = Division.of(cores).threads
        self._session = self._opened()
        self._largest = 0
        self.at_once = 1
        """Samples that run side by side; the size of their tensors tells how many."""

    def _opened(self) -> sessions.Session:
        # onnxruntime's fusions lose inputs of operators in a body whose tensors are outputs too.
        return sessions.observing(
            self._model,
            taps=self._taps.values(),
            optimized=not self._shown,
            threads=self._threads,
        )

    def samples(self, data: Data, part: Part, most: int | None) -> Iterator[Sample]:
        inputs = self._session.inputs
        return given_samples(inputs, data, first=part.index, every=part.of, most=most)

    def taken(self, data: Data, part: Part) -> Taken:
        """Which samples a run takes, of data that can be read again."""
        first = next(given_samples(self._session.inputs, data, most=1), None)
        return Taken() if first is None else Taken.of(first.feed, part.index, part.of)

    def values(self, sample: Sample) -> dict[str, Array]:
        """Run one sample: the wanted tensors that are computed."""
        for name, given in sample.feed.items():
            if is_float(given.dtype) and not np.isfinite(given).all():
                raise LoadError(
                    f"{_named(sample)}: input '{name}' contains values that are not finite",
                    fix="remove the sample, or repair it",
                )
        taps = dict.fromkeys(self._taps.values())
        # Asked for nothing, a session returns everything.
        try:
            return self._session.run(sample.feed, only=taps) if taps else {}
        except VerifyError as error:
            raise LoadError(
                f"{_named(sample)}: {error.what}",
                fix="remove the sample, or repair it: the model does not take its shapes or values",
            ) from error

    def add(self, sample: Sample, values: Mapping[str, Array], found: Statistics) -> None:
        """Take in one sample."""
        for name in self._names:
            value: Array | None = sample.feed.get(name, values.get(self._taps.get(name, "")))
            if value is None:
                continue
            if name in self._shown:
                value = self._shown[name].values(value)
            try:
                found.tensors[name].add(value)
            except FloatingPointError as error:
                raise LoadError(
                    f"{_named(sample)}: tensor '{name}' contains {error}, though all inputs are "
                    "finite: the float model itself overflows there",
                    fix="remove the sample, or look at the layer that produces the tensor",
                ) from error
        found.samples += 1
        self._divide(sum(value.nbytes for value in values.values()))

    def _divide(self, sample_bytes: int) -> None:
        """Divide the cores among samples of this size."""
        self._largest = max(self._largest, sample_bytes)
        division = Division.of(self.cores, self._largest)
        self.at_once = division.samples
        if division.threads != self._threads:
            self._threads = division.threads
            self._session = self._opened()


def _named(sample: Sample) -> str:
    return f"sample {sample.number + 1} (index {sample.number}, {sample.where})"


def constant_tensors(statistics: Statistics) -> list[str]:
    """Tensors that had one and the same value in all samples: a sign of wrong data."""
    return [
        name
        for name, each in statistics.tensors.items()
        if not each.is_empty and each.histogram.low == each.histogram.high
    ]


__all__ = ["Part", "check_given", "constant_tensors", "earlier_run", "name_of_run", "observe"]
