"""The command that makes a report, and `--report` of the commands that write or compare files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from onnxq.cli.completion import backend_names
from onnxq.cli.options import (
    PATH,
    Json,
    ModelPath,
    Seed,
    VariantName,
    show,
)
from onnxq.cli.paths import check_output_file
from onnxq.cli.progress import progress_line
from onnxq.disk.file_set import check_folder
from onnxq.running.records import Data
from onnxq.views import screen
from onnxq.workflows.report import BACKEND, ModelReport
from onnxq.workflows.report import report as made

ReportFile = Annotated[
    Path | None,
    typer.Option("--report", help="Also write a report to this HTML file.", **PATH),
]


def check_report_file(path: Path | None, *inputs: Any) -> None:
    """Raise if a report could not be written, or would replace what is read, before any work."""
    if path is not None:
        check_output_file(path, ".html", *inputs)


def report(
    model: ModelPath,
    against: Annotated[
        Path | None,
        typer.Option("--against", help="The model to compare with, mostly the float one.", **PATH),
    ] = None,
    data: Data = None,
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            "-b",
            help="The target to check for. See 'onnxq backends'.",
            autocompletion=backend_names,
        ),
    ] = BACKEND,
    variant: VariantName = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The HTML file to write.", **PATH)
    ] = Path("report.html"),
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples", min=1, help="Most samples of the data to use, or number of random inputs."
        ),
    ] = None,
    seed: Seed = 0,
    bench: Annotated[
        float,
        typer.Option("--bench", min=0.0, help="Measure latencies for about this many seconds."),
    ] = 0.0,
    model_explorer: Annotated[
        Path | None,
        typer.Option(
            "--model-explorer",
            help="Folder to write the graph and its overlays to, for Google's Model Explorer.",
            **PATH,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page about a model: coverage, errors, distributions, and what to do next."""
    check_report_file(output, model, against, data)
    if model_explorer is not None:
        check_folder(model_explorer)
    with progress_line(as_json) as progress:
        done = made(
            model,
            against,
            data,
            backend=backend,
            variant=variant,
            samples=samples,
            count=4 if samples is None else samples,
            seed=seed,
            bench_seconds=bench,
            progress=progress,
        )
        progress("writing the page")
        files = [done.save(output)]
        if model_explorer is not None:
            files += done.save_model_explorer(model_explorer)
    show(as_json, lambda: _document(done, files), lambda: screen.shown(done.summary))
    if not as_json:
        for path in files:
            screen.console().print(f"written to {path}")


def _document(done: ModelReport, files: list[Path]) -> dict[str, Any]:
    return {"files": [str(path) for path in files], **done.to_json()}
