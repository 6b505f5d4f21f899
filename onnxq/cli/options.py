"""Shared by commands: options, and one way to show results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType

from onnxq.cli.completion import backend_names, variant_names
from onnxq.cli.paths import path_given, with_notes
from onnxq.views import screen
from onnxq.views.alike import merged
from onnxq.workflows.artifacts import MadeFiles

PATH: dict[str, Any] = {"parser": path_given, "metavar": "<path>"}
"""Keywords of an option that takes a path."""

MODEL: dict[str, Any] = {"parser": path_given, "show_default": False}
"""Keywords of an argument that takes a path."""

ModelPath = Annotated[Path, typer.Argument(help="An ONNX file.", **MODEL)]
BackendName = Annotated[
    str,
    typer.Option("--backend", "-b", help="See 'onnxq backends'.", autocompletion=backend_names),
]
VariantName = Annotated[
    str | None,
    typer.Option(
        "--variant",
        help="Alternative way to deploy; 'onnxq backends NAME' lists them.",
        autocompletion=variant_names,
    ),
]
OutputFolder = Annotated[
    Path, typer.Option("--output", "-o", help="Folder to write the files to.", **PATH)
]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Skip the proof.")]
DumpFolder = Annotated[
    Path | None,
    typer.Option("--dump", help="Folder to write the model to after every pass.", **PATH),
]
DataPath = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Inputs: a .npz or .npy file, or a folder of them or of pictures (--image-size). "
        "quantize and calibrate need it for ranges; others take random values without it.",
        **PATH,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Number of random inputs.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the random inputs.")]
MaxSteps = Annotated[
    float,
    typer.Option("--max-steps", help="Largest difference on quantized outputs, in steps."),
]
MaxMoved = Annotated[
    float, typer.Option("--max-moved", help="Largest fraction of values that may differ.")
]
MaxRelative = Annotated[
    float,
    typer.Option("--max-relative", help="Largest relative difference on unquantized outputs."),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show what each pass rewrote, what it skipped, and why.")
]
EncodingFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--encodings",
        **PATH,
        help="Side file with the quantization of a float model; repeat the option for several "
        "files. See 'onnxq formats'.",
    ),
]
AllowMissing = Annotated[
    bool,
    typer.Option(
        "--allow-missing",
        help="Continue if encodings and model do not match, and list every mismatch.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse encodings that leave out a tensor that needs a range. Default: it stays "
        "float, with a note.",
    ),
]
WeightRanges = Annotated[
    Literal["max"] | None,
    typer.Option(
        "--weights",
        help="Quantize weights missing from the encodings: 'max' is int8, absmax / 127 per "
        "channel.",
    ),
]


def show(as_json: bool, document: Callable[[], Any], view: Callable[[], RenderableType]) -> None:
    """Print a result, for a program or for a person."""
    if as_json:
        # Pure ASCII: valid whatever encoding standard output has.
        sys.stdout.write(json.dumps(with_notes(document()), allow_nan=False) + "\n")
    else:
        screen.console().print(view())


def show_notes(notes: Iterable[str]) -> None:
    """Print notes, one a line; those that are alike share one."""
    console = screen.console()
    for note in merged(notes):
        console.print(f"note: {note}", style="yellow")


def show_verdict(
    as_json: bool, done: MadeFiles, folder: Path, otherwise: str, *, changed: bool = False
) -> None:
    """Print whether the files in `folder` are proven; exit with 1 if their proof failed.

    `changed`: the files contain another network than the source.
    This is for people, so it goes to standard error when standard output is for a program.
    """
    console = screen.console(stderr=as_json)
    if not done.proofs:
        console.print(f"written to {folder}, not verified", style="yellow")
    elif done.proven and changed:
        told = "; the files are proven, but the network was changed: see the cost"
        console.print(f"written to {folder}{told}", style="yellow")
    elif done.proven:
        console.print(f"written to {folder}, proven", style="green")
    else:
        console.print(f"NOT PROVEN: {otherwise}", style="bold red")
        raise typer.Exit(1)
