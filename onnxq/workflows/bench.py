"""Latencies of several models side by side, in onnxruntime's default session.

Each model is in a process of its own, so one that ends its process is named and the others are
measured. All are loaded first, then warmed up, then measured in interleaved rounds (see
`onnxq.timing.rounds`), then profiled one by one. Models with the same inputs get the same ones.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from onnxq.disk.data_file import locations
from onnxq.disk.scratch import scratch_folder
from onnxq.errors import OnnxqError, OptionError, VerifyError
from onnxq.graph import Model, save
from onnxq.running.ort_tensors import TensorSpec
from onnxq.running.samples import Data, Feed, random_feed, samples
from onnxq.running.sessions import open_model
from onnxq.timing.child import Child, Died
from onnxq.timing.rounds import Rounds, Spread, play
from onnxq.timing.shared_inputs import Group, group
from onnxq.timing.stopwatch import Run
from onnxq.timing.survey import Survey

BenchModel: TypeAlias = "str | os.PathLike[str] | Model"

SECONDS = 10.0
_WARM_SHARE = 20
_MOST_SAMPLES, _MOST_BYTES = 16, 1 << 28
_NOISY = 0.15


@dataclass(frozen=True)
class Latency:
    """One model of a comparison."""

    model: str
    milliseconds: Spread | None
    """Of one run, over the rounds; None if the model died."""
    ratio: Spread | None
    """To the first model; None if one of the two died."""
    file_bytes: int
    """The file with its external data."""
    inputs: tuple[str, ...]
    """The shapes that were measured, as "name float32[1, 3, 224, 224]"."""
    own_inputs: bool
    """Whether its inputs were not those of the first model."""
    runs: int
    """Timed runs in a round."""
    clean_rounds: int
    """Rounds with runs that other programs did not interrupt."""
    survey: Survey | None
    failure: str = ""
    """How the model died, or ''."""

    def to_json(self) -> dict[str, Any]:
        """The row as JSON."""
        return {
            "model": self.model,
            "milliseconds": _spread_json(self.milliseconds),
            "ratio": _spread_json(self.ratio),
            "file_bytes": self.file_bytes,
            "inputs": list(self.inputs),
            "own_inputs": self.own_inputs,
            "runs_per_round": self.runs,
            "clean_rounds": self.clean_rounds,
            "profile": None if self.survey is None else self.survey.to_json(),
            "failure": self.failure,
        }


@dataclass(frozen=True)
class Bench:
    """Latencies of models that were measured together."""

    models: tuple[Latency, ...]
    threads: int
    rounds: int
    notes: list[str]

    @property
    def passed(self) -> bool:
        """Whether every model ran."""
        return not any(row.failure for row in self.models)

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return {
            "threads": self.threads,
            "rounds": self.rounds,
            "models": [row.to_json() for row in self.models],
            "notes": self.notes,
        }


def _spread_json(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else vars(spread)


@dataclass
class _Entry:
    """A model while it is measured."""

    label: str
    path: Path
    child: Child
    file_bytes: int
    inputs: tuple[TensorSpec, ...] = ()
    taken: tuple[str, ...] = ()
    own_inputs: bool = False
    estimate: float = 0.0
    survey: Survey | None = None
    failure: str = ""
    notes: list[str] = field(default_factory=list)

    def take(self, feeds: list[Feed]) -> None:
        """Take samples, and run each once."""
        self.child.ask("take", feeds)
        self.taken = tuple(f"{name} {v.dtype}{list(v.shape)}" for name, v in feeds[0].items())

    def turn(self, number: int, runs: int) -> list[Run]:
        """One turn in a round."""
        timed: list[Run] = self.child.ask("turn", number, runs)
        return timed

    @contextlib.contextmanager
    def dying(self) -> Iterator[None]:
        """Remember how the model dies inside."""
        try:
            yield
        except Died as death:
            self.failure = str(death)


def bench(
    models: Iterable[BenchModel] | Mapping[str, BenchModel],
    data: Data = None,
    *,
    threads: int = 1,
    seconds: float = SECONDS,
    seed: int = 0,
    profile: bool = True,
    progress: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Bench:
    """Measure models side by side; ratios are to the first.

    Args:
        models: paths or models, or a mapping with the names to show for them.
        data: inputs as `verify` takes them, at most 16 samples; default: random ones.
        threads: threads inside an operator.
        seconds: time for the rounds; there are at least five, however long they take.
        seed: seed of the random inputs.
        profile: also find out which kernels run and where the time goes.
        progress: called with what is being done.
        clock: measures the time for the rounds, not the latencies.
    """
    told = progress or (lambda _: None)
    _check(threads, seconds)
    if isinstance(data, Iterator):  # models with other inputs read it again
        data = list(itertools.islice(data, _MOST_SAMPLES))
    with scratch_folder() as folder, contextlib.ExitStack() as stack:
        files = [(name, path, _size(path)) for name, path in _files(models, folder)]
        entries = [
            _Entry(name, path, stack.enter_context(Child(folder / f"{number}.log")), size)
            for number, (name, path, size) in enumerate(files)
        ]
        for entry in entries:
            told(f"loading {entry.label}")
            with entry.dying():
                entry.inputs = entry.child.ask("open", os.fspath(entry.path), threads)
        told("choosing inputs")
        _feed_all(entries, data, seed)
        rounds = _measured(entries, seconds, clock, told)
        for number, entry in enumerate(entries if profile else ()):
            _profile(entry, folder / f"profile-{number}", told)
        return _result(entries, rounds, threads)


def _check(threads: int, seconds: float) -> None:
    if threads < 1:
        raise OptionError(f"{threads} threads cannot run a model", fix="give 1 or more")
    if not (math.isfinite(seconds) and seconds > 0):
        raise OptionError(f"cannot measure for {seconds} seconds", fix="give more than 0")


def _files(
    models: Iterable[BenchModel] | Mapping[str, BenchModel], folder: Path
) -> Iterator[tuple[str, Path]]:
    """The name and file of each model; those in memory are written to `folder`."""
    if isinstance(models, (str, os.PathLike, Model)):
        models = [models]
    named = models.items() if isinstance(models, Mapping) else ((None, m) for m in models)
    found = False
    for number, (name, model) in enumerate(named):
        found = True
        if isinstance(model, Model):
            path = folder / f"model-{number}" / "model.onnx"
            path.parent.mkdir()
            save(model, path)
            yield name or f"model {number + 1}", path
        else:
            yield name or os.fspath(model), Path(model)
    if not found:
        raise OptionError("there are no models to measure", fix="give at least one")


def _size(path: Path) -> int:
    """The size of a model's file and of its data files; raises if it is not a model."""
    opened = open_model(path)
    files = {path, *(path.resolve().parent / name for name in locations(opened.proto))}
    return sum(file.stat().st_size for file in files if file.is_file())


# -- inputs -----------------------------------------------------------------------------------


def _feed_all(entries: list[_Entry], data: Data, seed: int) -> None:
    """Give all models their inputs."""
    groups = group((n, e.inputs) for n, e in enumerate(entries) if not e.failure)
    for members in groups:
        _feed(entries, members, data, seed)
        for entry in (entries[n] for n in members.members):
            if members is not groups[0] and not entry.own_inputs:
                first = entries[groups[0].members[0]].label
                _say_own(entry, f"they differ from those of {first}")


def _feed(entries: list[_Entry], members: Group, data: Data, seed: int) -> None:
    """Give the models of a group the same inputs; those that cannot run them get their own."""
    maker: _Entry | None = None
    feeds: list[Feed] = []
    for entry in (entries[n] for n in members.members):
        with entry.dying():
            if maker is None:
                feeds = _feeds(entry, members.inputs, data, seed)
                maker = entry
            try:
                entry.take(feeds)
            except VerifyError as refused:
                if entry is maker or data is not None:
                    raise
                entry.take(_feeds(entry, entry.inputs, data, seed))
                _say_own(entry, f"it does not run with those of {maker.label}: {refused.what}")


def _say_own(entry: _Entry, why: str) -> None:
    entry.own_inputs = True
    entry.notes.append(f"{entry.label} has inputs of its own: {why}")


def _feeds(entry: _Entry, inputs: tuple[TensorSpec, ...], data: Data, seed: int) -> list[Feed]:
    """One random sample, or the first ones of the data."""
    try:
        if data is None:
            return [random_feed(entry.child.ask("fill", inputs, seed), seed)]
        feeds: list[Feed] = []
        for feed in itertools.islice(samples(inputs, data), _MOST_SAMPLES):
            feeds.append(feed)
            if sum(value.nbytes for f in feeds for value in f.values()) > _MOST_BYTES:
                break
        return feeds
    except OnnxqError as error:
        error.add_note(f"for {entry.label}")
        raise


# -- measuring --------------------------------------------------------------------------------


def _measured(
    entries: list[_Entry],
    seconds: float,
    clock: Callable[[], float],
    told: Callable[[str], None],
) -> Rounds:
    """The rounds of all models; those that died before have no turns."""
    told("warming up")
    for entry in entries:
        if not entry.failure:
            with entry.dying():
                entry.estimate = entry.child.ask("warm", seconds / _WARM_SHARE / len(entries))
    alive = [n for n, entry in enumerate(entries) if not entry.failure]
    told(f"measuring for about {seconds:g} s")
    played = play([entries[n] for n in alive], [entries[n].estimate for n in alive], seconds, clock)
    rounds = Rounds([[] for _ in entries], [0] * len(entries))
    for place, number in enumerate(alive):
        rounds.turns[number] = played.turns[place]
        rounds.runs[number] = played.runs[place]
        entries[number].failure = played.deaths.get(place, "")
    return rounds


def _profile(entry: _Entry, folder: Path, told: Callable[[str], None]) -> None:
    """Let a model be surveyed; one without a survey keeps its latency."""
    if entry.failure:
        return
    told(f"profiling {entry.label}")
    folder.mkdir()
    try:
        entry.survey = entry.child.ask("survey", os.fspath(folder))
    except Died as death:
        entry.notes.append(f"{entry.label} could not be profiled: {death}")
    except OnnxqError as error:
        entry.notes.append(f"{entry.label} could not be profiled: {error.what}")


def _result(entries: list[_Entry], rounds: Rounds, threads: int) -> Bench:
    rows = []
    for number, entry in enumerate(entries):
        spread = rounds.spread(number)
        rows.append(
            Latency(
                model=entry.label,
                milliseconds=None if spread is None else spread.times(1e3),
                ratio=rounds.ratio(number),
                file_bytes=entry.file_bytes,
                inputs=entry.taken,
                own_inputs=entry.own_inputs,
                runs=rounds.runs[number],
                clean_rounds=sum(turn.clean for turn in rounds.turns[number]),
                survey=entry.survey,
                failure=entry.failure,
            )
        )
        if spread is not None:
            entry.notes += _doubts(entry.label, spread, rounds.trusted(number))
    notes = [note for entry in entries for note in entry.notes]
    return Bench(tuple(rows), threads, rounds.count, notes)


def _doubts(label: str, spread: Spread, trusted: bool) -> Iterator[str]:
    """Why a latency may be wrong."""
    if not trusted:
        yield (
            f"other programs interrupted nearly all runs of {label}: its latency is too long, and "
            "its ratio wrong; measure on a quiet machine"
        )
    elif spread.high - spread.low > _NOISY * spread.median:
        yield (
            f"the latency of {label} varies: half of the rounds are outside "
            f"{1e3 * spread.low:.3g} to {1e3 * spread.high:.3g} ms"
        )
