"""The commands that collect statistics of data, and merge them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxq.cli import failures
from onnxq.cli.options import (
    MODEL,
    PATH,
    BackendName,
    Json,
    ModelPath,
    show,
    show_notes,
)
from onnxq.cli.paths import check_output_file
from onnxq.cli.progress import progress_line
from onnxq.errors import LoadError, OptionError
from onnxq.observing.observe import constant_tensors
from onnxq.observing.progress_files import ProgressFiles
from onnxq.observing.statistics import Statistics, merged
from onnxq.running.records import Data
from onnxq.views import screen
from onnxq.views.statistics import statistics
from onnxq.workflows.calibrate import calibrate as calibrated

Output = Annotated[Path, typer.Option("--output", "-o", help="The file to write.", **PATH)]


def calibrate(
    model: ModelPath,
    backend: BackendName,
    output: Output,
    data: Data = None,
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Take part I of N parts of the samples."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, help="Take only the first samples.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Number of processes.")] = 1,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ADDRESS", help="Use the workers of a dask scheduler."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was interrupted.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a float model on data and keep statistics of its tensors."""
    check_output_file(output, ".stats", model, data)
    files = ProgressFiles.beside(output)
    left = files.found()
    if left and not resume:
        raise OptionError(
            f"'{left[0]}' is of a run that was interrupted",
            fix="continue it with --resume, or remove the file to start anew",
        )
    try:
        with progress_line(as_json) as progress:
            found = calibrated(
                model,
                data,
                backend=backend,
                shard=shard,
                samples=samples,
                jobs=jobs,
                cluster=cluster,
                resume=files.whole,
                progress=progress,
            )
    except KeyboardInterrupt:
        typer.echo(_kept(files.found()), err=True)
        raise
    _finish(found, output, as_json)
    files.remove()


def _kept(files: list[Path]) -> str:
    if not files:
        return failures.INTERRUPTED
    others = f" and {len(files) - 1} more beside it" if len(files) > 1 else ""
    return f"interrupted; what is known is in '{files[0]}'{others}: continue with --resume"


def merge(
    parts: Annotated[
        list[Path], typer.Argument(help="Files written by 'onnxq calibrate'.", **MODEL)
    ],
    output: Output,
    as_json: Json = False,
) -> None:
    """Merge the statistics of several parts of the data."""
    check_output_file(output, ".stats", *parts)
    places = [path.resolve() for path in parts]
    twice = [path for at, path in enumerate(parts) if places[at] in places[:at]]
    if twice:
        raise OptionError(f"'{twice[0]}' is given twice", fix="give each part once")
    whole: Statistics | None = None
    with progress_line(as_json) as progress:
        for number, path in enumerate(parts):
            progress(f"merging part {number + 1} of {len(parts)}")
            part = Statistics.load(path)
            try:
                whole = merged([part] if whole is None else [whole, part])
            except LoadError as error:
                raise LoadError(f"'{path}': {error.what}", fix=error.fix) from error
    assert whole is not None
    _finish(whole, output, as_json, _missing(whole))


def _missing(whole: Statistics) -> list[str]:
    """Say of merged statistics that they are not of all data."""
    shown = [f"{index + 1}/{of}" for _, index, of in sorted(whole.taken.classes) if of > 1]
    if not shown:
        return []
    parts = f"part{'s' * (len(shown) > 1)} {', '.join(shown)}"
    return [f"these are statistics of {parts} of the data: merge the others, too"]


def _finish(found: Statistics, output: Path, as_json: bool, more: Sequence[str] = ()) -> None:
    found.save(output)
    notes = [*more, *_notes(found)]
    show(as_json, lambda: _document(found, output, notes), lambda: statistics(found))
    if not as_json:
        show_notes(notes)
        screen.console().print(f"{found.samples} samples, written to {output}")


def _notes(found: Statistics) -> list[str]:
    never = [name for name, each in found.tensors.items() if each.is_empty]
    return [
        *(f"'{name}' had no values: its branch never ran, or it was empty" for name in never),
        *(
            f"'{name}' had the same value in all samples: is this the right data?"
            for name in constant_tensors(found)
        ),
    ]


def _document(found: Statistics, output: Path, notes: list[str]) -> dict[str, Any]:
    return {
        "files": [str(output)],
        "model": found.model,
        "samples": found.samples,
        "tensors": [
            {"name": name}
            | ({"low": None, "high": None} if each.is_empty else _extremes(each.histogram))
            for name, each in found.tensors.items()
        ],
        "notes": notes,
    }


def _extremes(histogram: Any) -> dict[str, float]:
    return {"low": float(histogram.low), "high": float(histogram.high)}


__all__ = ["calibrate", "merge"]
