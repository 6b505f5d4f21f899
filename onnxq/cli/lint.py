"""The commands that check a model for a target: lint and explain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli import lint_tables
from onnxq.cli.options import MODEL, BackendName, Json, ModelPath, VariantName, progress_line, show
from onnxq.graph import load
from onnxq.workflows.explain import explain as explained
from onnxq.workflows.lint_model import lint_path


def lint(
    model: Annotated[
        Path,
        typer.Argument(help="An ONNX file, or a folder that 'onnxq convert' wrote.", **MODEL),
    ],
    backend: BackendName,
    variant: VariantName = None,
    strict: Annotated[bool, typer.Option("--strict", help="Also fail on warnings.")] = False,
    as_json: Json = False,
) -> None:
    """List what a backend will reject or run in float, and why."""
    with progress_line(as_json) as progress:
        progress(f"checking {model}")
        reports = lint_path(model, backend, variant=variant)
    show(
        as_json,
        lambda: [r.to_json() for r in reports],
        lambda: lint_tables.reports(reports),
    )
    if not all(report.passed(strict) for report in reports):
        raise typer.Exit(1)


def explain(
    model: ModelPath,
    tensor: Annotated[str, typer.Argument(help="A tensor of the model.", show_default=False)],
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend", "-b", help="Apply the rules of this backend. See 'onnxq backends'."
        ),
    ] = None,
    variant: VariantName = None,
    as_json: Json = False,
) -> None:
    """Explain why a tensor is or is not quantized, and which kernels use it."""
    found = explained(load(model), tensor, backend, variant=variant)
    show(as_json, found.to_json, lambda: lint_tables.explanation(found))
