"""The commands for side files: writing them, and listing their formats."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxq.cli import failures, tables
from onnxq.cli.options import (
    Explain,
    Json,
    ModelPath,
    NoVerify,
    OutputFolder,
    Samples,
    Seed,
    progress_line,
    show,
    show_plugins,
    show_verdict,
)
from onnxq.disk.file_set import check_folder
from onnxq.running.records import Data
from onnxq.side_files.side_file import SideFile
from onnxq.side_files.side_file import formats as known_formats
from onnxq.workflows.side_export import export_side_file


def encodings(
    model: ModelPath,
    format_: Annotated[str, typer.Option("--format", "-f", help="See 'onnxq formats'.")],
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
        progress(f"reading {model}")
        done = export_side_file(
            model, format_, data=data, verify=not no_verify, count=samples, seed=seed
        )
        progress("writing files")
        folder = failures.save(done, output)
    show(as_json, done.to_json, lambda: tables.conversion(done, explain))
    otherwise = (
        f"the side file in {folder} does not match the model.\n"
        "  next: see what the passes did with --explain"
    )
    show_verdict(as_json, done, folder, otherwise)


def formats(as_json: Json = False) -> None:
    """List the side-file formats and how each is recognised."""
    show_plugins(as_json, known_formats(), SideFile.to_json, tables.format_list)
