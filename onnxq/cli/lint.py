"""The commands that check a model for a target: lint and explain."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from onnxq.cli.completion import backend_names
from onnxq.cli.options import MODEL, BackendName, Json, VariantName, show
from onnxq.cli.progress import progress_line
from onnxq.errors import OptionError
from onnxq.glossary import Word, look_up, unknown_word
from onnxq.graph import load
from onnxq.views import lint_tables
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
    model: Annotated[Path, typer.Argument(help="An ONNX file, or a word such as 'step'.", **MODEL)],
    tensor: Annotated[
        str | None, typer.Argument(help="A tensor of the model.", show_default=False)
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            "-b",
            help="Apply the rules of this backend. See 'onnxq backends'.",
            autocompletion=backend_names,
        ),
    ] = None,
    variant: VariantName = None,
    as_json: Json = False,
) -> None:
    """Explain why a tensor is or is not quantized and which kernels use it, or a word."""
    word = _word(model, tensor)
    if word is not None:
        show(as_json, word.to_json, lambda: lint_tables.definition(word))
        return
    with progress_line(as_json) as progress:
        progress(f"reading {model}")
        source = load(model)
        if tensor is None:
            raise OptionError(
                f"no tensor of '{model}' given",
                fix=f"'onnxq explain {model} TENSOR'; 'onnxq inspect {model}' lists the tensors",
            )
        progress(f"explaining {tensor}")
        found = explained(source, tensor, backend, variant=variant)
    show(as_json, found.to_json, lambda: lint_tables.explanation(found))


def _word(model: Path, tensor: str | None) -> Word | None:
    """The word of the glossary that the arguments are, or None: they are a model and a tensor.

    Words such as 'zero point' come as two arguments. A file of the same name goes first.
    """
    asked = str(model) if tensor is None else f"{model} {tensor}"
    if os.path.lexists(model):
        return None
    found = look_up(asked)
    if found is None and tensor is None and not model.suffix:
        raise unknown_word(asked)
    return found
