"""The command that writes side files."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxq.cli import failures
from onnxq.cli.completion import format_names
from onnxq.cli.options import (
    Explain,
    Json,
    ModelPath,
    NoVerify,
    OutputFolder,
    Samples,
    Seed,
    show,
    show_verdict,
)
from onnxq.cli.progress import progress_line
from onnxq.disk.file_set import check_folder
from onnxq.running.records import Data
from onnxq.views import tables
from onnxq.workflows.side_export import export_side_file


def encodings(
    model: ModelPath,
    format_: Annotated[
        str,
        typer.Option("--format", "-f", help="See 'onnxq formats'.", autocompletion=format_names),
    ],
    output: OutputFolder,
    data: Data = None,
    no_verify: NoVerify = False,
    explain: Explain = False,
    samples: Samples = 4,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Split a quantized model into a float model and a side file."""
    check_folder(output)
    with progress_line(as_json) as progress:
        done = export_side_file(
            model,
            format_,
            data=data,
            verify=not no_verify,
            count=samples,
            seed=seed,
            progress=progress,
        )
        progress("writing files")
        folder = failures.save(done, output)
    show(as_json, done.to_json, lambda: tables.side_export(done, explain))
    otherwise = (
        f"the side file in {folder} does not match the model.\n"
        "  next: see what the passes did with --explain"
    )
    show_verdict(as_json, done, folder, otherwise)
