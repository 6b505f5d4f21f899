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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from onnxq.disk.data_file import locations
from onnxq.disk.scratch import scratch_folder
from onnxq.errors import OnnxqError, OptionError
from onnxq.graph import Model, save
from onnxq.running.samples import Data
from onnxq.running.sessions import open_model
from onnxq.timing.child import Child, Died
from onnxq.timing.contender import Contender
from onnxq.timing.feeding import MOST_SAMPLES, feed_all
from onnxq.timing.rounds import Rounds, Spread, play
from onnxq.timing.survey import Survey
from onnxq.views.shown_result import ShownResult

if TYPE_CHECKING:
    from rich.console import RenderableType

BenchModel: TypeAlias = "str | os.PathLike[str] | Model"

SECONDS = 10.0
_WARM_SHARE = 20
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


@dataclass(frozen=True, repr=False)
class Bench(ShownResult):
    """Latencies of models that were measured together."""

    models: tuple[Latency, ...]
    threads: int
    rounds: int
    notes: list[str]

    def __repr__(self) -> str:
        told = (
            f"{row.model} " + (f"{s.median:.3g} ms" if (s := row.milliseconds) else "died")
            for row in self.models
        )
        return f"<Bench: {', '.join(told)}>"

    def _view(self, most: int) -> RenderableType:
        from onnxq.views import bench

        return bench.latencies(self)

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
        data = list(itertools.islice(data, MOST_SAMPLES))
    with scratch_folder() as folder, contextlib.ExitStack() as stack:
        files = [(name, path, _size(path)) for name, path in _files(models, folder)]
        contenders = [
            Contender(name, path, stack.enter_context(Child(folder / f"{number}.log")), size)
            for number, (name, path, size) in enumerate(files)
        ]
        for contender in contenders:
            told(f"loading {contender.label}")
            with contender.dying():
                contender.inputs = contender.child.ask("open", os.fspath(contender.path), threads)
        told("choosing inputs")
        feed_all(contenders, data, seed)
        rounds = _measured(contenders, seconds, clock, told)
        for number, contender in enumerate(contenders if profile else ()):
            _profile(contender, folder / f"profile-{number}", told)
        return _result(contenders, rounds, threads)


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


# -- measuring --------------------------------------------------------------------------------


def _measured(
    contenders: list[Contender],
    seconds: float,
    clock: Callable[[], float],
    told: Callable[[str], None],
) -> Rounds:
    """The rounds of all models; those that died before have no turns."""
    told("warming up")
    for contender in contenders:
        if not contender.failure:
            with contender.dying():
                contender.estimate = contender.child.ask(
                    "warm", seconds / _WARM_SHARE / len(contenders)
                )
    alive = [n for n, contender in enumerate(contenders) if not contender.failure]
    told(f"measuring for about {seconds:g} s")
    played = play(
        [contenders[n] for n in alive], [contenders[n].estimate for n in alive], seconds, clock
    )
    rounds = Rounds([[] for _ in contenders], [0] * len(contenders))
    for place, number in enumerate(alive):
        rounds.turns[number] = played.turns[place]
        rounds.runs[number] = played.runs[place]
        contenders[number].failure = played.deaths.get(place, "")
    return rounds


def _profile(contender: Contender, folder: Path, told: Callable[[str], None]) -> None:
    """Let a model be surveyed; one without a survey keeps its latency."""
    if contender.failure:
        return
    told(f"profiling {contender.label}")
    folder.mkdir()
    try:
        contender.survey = contender.child.ask("survey", os.fspath(folder))
    except Died as death:
        contender.notes.append(f"{contender.label} could not be profiled: {death}")
    except OnnxqError as error:
        contender.notes.append(f"{contender.label} could not be profiled: {error.what}")


def _result(contenders: list[Contender], rounds: Rounds, threads: int) -> Bench:
    rows = []
    for number, contender in enumerate(contenders):
        spread = rounds.spread(number)
        rows.append(
            Latency(
                model=contender.label,
                milliseconds=None if spread is None else spread.times(1e3),
                ratio=rounds.ratio(number),
                file_bytes=contender.file_bytes,
                inputs=contender.taken,
                own_inputs=contender.own_inputs,
                runs=rounds.runs[number],
                clean_rounds=sum(turn.clean for turn in rounds.turns[number]),
                survey=contender.survey,
                failure=contender.failure,
            )
        )
        if spread is not None:
            contender.notes += _doubts(contender.label, spread, rounds.trusted(number))
    notes = [note for contender in contenders for note in contender.notes]
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
