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
    show_verdict,
)
from onnxq.discovery import Broken
from onnxq.disk.file_set import check_folder
from onnxq.running.records import Data
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
    show_verdict(
        as_json,
        f"written to {folder}",
        done.proven if done.proofs else None,
        f"the side file in {folder} does not describe what the model computes.\n"
        "  next: see what "
        "the passes did with --explain",
    )


def formats(as_json: Json = False) -> None:
    """List the side-file formats and how each is recognised."""
    known = known_formats()
    show(
        as_json,
        lambda: [
            {"name": n, "error": f.error} if isinstance(f, Broken) else f.to_json()
            for n, f in known.items()
        ],
        lambda: tables.format_list(dict(known)),
    )
