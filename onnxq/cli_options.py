"""What commands share: options, progress, and one way to show results."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType

from onnxq import render

ModelPath = Annotated[Path, typer.Argument(help="An ONNX file.", show_default=False)]
DataPath = Annotated[
    Path | None,
    typer.Option("--data", help="Inputs: .npz, .npy, or a folder of them. Default: random."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Number of random inputs.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the random inputs.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show what each pass did, and what it left and why.")
]
EncodingFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--encodings",
        help="Side file with the quantization of a float model; may be given several times. "
        "See 'onnxq formats'.",
    ),
]
AllowMissing = Annotated[
    bool,
    typer.Option("--allow-missing", help="Go on where encodings and model do not fit, and say so."),
]
WeightRanges = Annotated[
    Literal["max"] | None,
    typer.Option(
        "--weights",
        help="Quantize weights that encodings leave out: 'max' is int8, absmax / 127 per channel.",
    ),
]


def show(as_json: bool, document: Callable[[], Any], view: Callable[[], RenderableType]) -> None:
    """Print a result, for a program or for a person."""
    if as_json:
        # Pure ASCII: valid whatever encoding standard output has.
        sys.stdout.write(json.dumps(document(), allow_nan=False) + "\n")
    else:
        render.console().print(view())


@contextlib.contextmanager
def progress_line(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A status line on a terminal; silence elsewhere."""
    console = render.console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with console.status("starting") as status:
        yield lambda text: status.update(text)


def show_notes(notes: list[str]) -> None:
    """Print notes, one a line."""
    console = render.console()
    for note in notes:
        console.print(f"note: {note}", style="yellow", markup=False)
