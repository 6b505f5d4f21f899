"""The command that measures latencies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli.options import MODEL, Json, Seed, show
from onnxq.cli.progress import progress_line
from onnxq.running.records import Data
from onnxq.views.bench import latencies
from onnxq.workflows.bench import SECONDS
from onnxq.workflows.bench import bench as measured


def bench(
    models: Annotated[
        list[Path], typer.Argument(help="ONNX files; ratios are to the first.", **MODEL)
    ],
    data: Data = None,
    threads: Annotated[
        int, typer.Option("--threads", min=1, help="Threads inside an operator.")
    ] = 1,
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=0.01, help="Time for all rounds; there are at least 5."),
    ] = SECONDS,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure the latencies of models side by side, and what runs in float."""
    with progress_line(as_json) as progress:
        found = measured(
            models, data, threads=threads, seconds=seconds, seed=seed, progress=progress
        )
    show(as_json, found.to_json, lambda: latencies(found))
    if not found.passed:
        raise typer.Exit(1)
