"""Runs a float model on data and keeps statistics of its tensors.

Samples are taken one at a time, so memory does not depend on their number. Work is divided by
the number of the sample: part i of n takes the samples i, i + n, i + 2n ... Whatever part a sample
is in, the merged statistics are the same, to the bit.
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

from onnxq.errors import LoadError, OptionError
from onnxq.graph import Model
from onnxq.observing.inner_taps import Shown, expose
from onnxq.observing.statistics import Statistics, fingerprint
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
    progress: Callable[[str], None] = lambda _: None,
    watch: Callable[[Feed], None] = lambda _: None,
) -> Statistics:
    """Statistics of the `wanted` tensors over the samples of `part`, `most` of all at most.

    `resume` is a file that receives what is known from time to time, and on an interrupt. If it
    exists, its samples are not run again. The caller removes it. Whoever merges parts allows
    one to be empty (`may_be_empty`). `watch` is called with every sample that was run.
    """
    check_given(data)
    found = Statistics.of(fingerprint(model), wanted)
    found.unfinished = name_of_run(data, part, most)
    if resume is not None and resume.exists():
        found = earlier_run(resume, found)
    run = _Run(model, wanted)
    saved = time.monotonic()
    # An interrupt reaches the main thread only, so a sample is taken in as a whole or not at all.
    with ThreadPoolExecutor(1, "calibrating") as worker:
        try:
            for sample in itertools.islice(run.samples(data, part, most), found.samples, None):
                progress(f"calibrating: sample {sample.number + 1}")
                worker.submit(run.add, sample, found).result()
                watch(sample.feed)
                if resume is not None and time.monotonic() - saved > SAVE_SECONDS:
                    found.save(resume)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            worker.shutdown()
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
            fix="give typical inputs with --data: an .npz file, a folder of .npy or .npz files, or "
            "pictures; ranges from random inputs would be wrong",
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

    def __init__(self, model: Model, wanted: Mapping[str, Wanted]) -> None:
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
        # onnxruntime's fusions lose inputs of operators in a body whose tensors are outputs too.
        opener = sessions.reference if self._shown else sessions.observing
        self._session = opener(model, taps=self._taps.values())
        self._names = list(wanted)

    def samples(self, data: Data, part: Part, most: int | None) -> Iterator[Sample]:
        inputs = self._session.inputs
        return given_samples(inputs, data, first=part.index, every=part.of, most=most)

    def add(self, sample: Sample, found: Statistics) -> None:
        """Run one sample and take it in."""
        which = f"sample {sample.number + 1} ({sample.where})"
        for name, given in sample.feed.items():
            if is_float(given.dtype) and not np.isfinite(given).all():
                raise LoadError(
                    f"{which}: input '{name}' contains values that are not finite",
                    fix="remove the sample, or repair it",
                )
        taps = dict.fromkeys(self._taps.values())
        values: dict[str, Array] = {}
        if taps:  # asked for nothing, a session returns everything
            values = self._session.run(sample.feed, only=taps)
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
                    f"{which}: tensor '{name}' contains {error}, though all inputs are finite: the "
                    "float model itself overflows there",
                    fix="remove the sample, or look at the layer that produces the tensor",
                ) from error
        found.samples += 1


def constant_tensors(statistics: Statistics) -> list[str]:
    """Tensors that had one and the same value in all samples: a sign of wrong data."""
    return [
        name
        for name, each in statistics.tensors.items()
        if not each.is_empty and each.histogram.low == each.histogram.high
    ]


__all__ = ["Part", "check_given", "constant_tensors", "earlier_run", "name_of_run", "observe"]
