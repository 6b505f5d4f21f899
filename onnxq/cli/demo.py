"""The command for the first five minutes: one network for every backend, in one table.

With `--train` a network is trained instead. Training lies in `torch_bridge`, which onnxq never
imports: it runs in a child process that tells its progress and its result as lines of JSON.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from onnxq.backend import Backend, backends
from onnxq.cli.options import Json as AsJson
from onnxq.cli.options import OutputFolder, show
from onnxq.cli.progress import progress_line
from onnxq.disk.file_set import check_folder
from onnxq.errors import OnnxqError, OptionError
from onnxq.graph import load, save
from onnxq.side_files.native_format import NativeFile
from onnxq.views import screen
from onnxq.workflows.bench import bench
from onnxq.workflows.convert import Conversion, convert

Progress = Callable[[str], None]

_WIDTH = 64
"""Channels of the network: enough for integers to be smaller and faster than floats."""
_SECONDS = 1.0
"""For the latencies of two models."""
_TRAINER = "torch_bridge.demo"
_NEEDED = ("torch", "sklearn")


def demo(
    output: OutputFolder = Path("onnxq-demo"),
    train: Annotated[
        bool,
        typer.Option(
            "--train",
            help="Train a network on handwritten digits for every backend; needs torch and "
            "scikit-learn. Takes a minute or two.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Convert a small network for every backend, and show proof, size and latency."""
    check_folder(output)
    with progress_line(as_json) as progress:
        found = (_trained if train else _converted)(output, progress)
    show(as_json, lambda: found, lambda: (_accuracies if train else _table)(found, output))
    if not all(row["proven"] for row in found["backends"]):
        raise typer.Exit(1)


# -- converting -------------------------------------------------------------------------------


def _converted(output: Path, progress: Progress) -> dict[str, Any]:
    """Write the network, its files for every backend and the report; returns the table."""
    from onnxq.workflows import demo as network

    progress("building a small quantized network")
    source, float_file, data = (output / n for n in ("demo.onnx", "float.onnx", "data.npz"))
    save(network.quantize(network.build(width=_WIDTH)), source)
    save(network.build(width=_WIDTH), float_file)
    network.save_images(data)
    done: dict[str, Conversion] = {}
    for name, backend in backends().items():
        if isinstance(backend, Backend) and backend.writes:
            progress(f"converting for {name}")
            done[name] = convert(source, name, data=data, allow_requantize=True)
            done[name].save(output / name)
    progress("drawing the report")
    page = done["onnxruntime"].full_report(data, against=load(float_file), progress=progress)
    page.save(output / "report.html")
    latency = _latency(float_file, done["onnxruntime"].files[0], progress)
    size = float_file.stat().st_size
    return {
        "float_bytes": size,
        "report": str(output / "report.html"),
        "backends": [
            _row(name, made, latency if name == "onnxruntime" else None)
            for name, made in done.items()
        ],
    }


def _latency(float_file: Path, written: Path, progress: Progress) -> float | None:
    """Of the written file in units of the float model's, as onnxruntime ships."""
    found = bench([float_file, written], seconds=_SECONDS, profile=False, progress=progress)
    ratio = found.models[1].ratio
    return None if ratio is None else ratio.median


def _row(name: str, made: Conversion, latency: float | None) -> dict[str, Any]:
    files = _deployed(made)
    costs = [] if made.cost is None else [o.sqnr for o in made.cost.outputs]
    return {
        "backend": name,
        "proven": made.proven,
        "sqnr": min((c for c in costs if math.isfinite(c)), default=None),
        "deploy": [file.name for file in files],
        "bytes": sum(file.stat().st_size for file in files),
        "latency": latency,
        "files": [str(file) for file in made.files],
    }


def _deployed(made: Conversion) -> list[Path]:
    """The model to deploy: the target's own files if it has some, else the first ONNX file."""
    own = [o.suffix for o in made.backend.outputs if isinstance(o, NativeFile)]
    found = [file for file in made.files if file.name.endswith(tuple(own))] if own else []
    return found or made.files[:1]


def _table(found: Mapping[str, Any], output: Path) -> RenderableType:
    columns = ("backend", "proof", "size", "latency", "to deploy")
    title = "One network for every backend; size and latency against float"
    table = screen.new_table(title, *columns, right=("size", "latency"))
    for row in found["backends"]:
        latency = row["latency"]
        table.add_row(
            row["backend"],
            _proof(row),
            f"{row['bytes'] / found['float_bytes']:.2f} ×",
            "" if latency is None else f"{latency:.2f} ×",
            ", ".join(row["deploy"]),
        )
    return Group(
        table,
        "proven: the files were read back, run and compared with the network; dB: what the target",
        "had to change, as signal to noise. Latency is measured where onnxruntime is the runtime.",
        "A size of about 1 is a float model: the vendor's tool makes integers of it, with the",
        "ranges in the file beside it.",
        f"files: {output}/BACKEND/",
        f"report, to be opened in a browser: {found['report']}",
    )


def _proof(row: Mapping[str, Any]) -> Text:
    if not row["proven"]:
        return Text("FAILED", "bold red")
    changed = f", {row['sqnr']:.0f} dB" if row.get("sqnr") is not None else ""
    return Text(f"proven{changed}", "green")


# -- training ---------------------------------------------------------------------------------


def _trained(output: Path, progress: Progress) -> dict[str, Any]:
    """Let a child process train; returns its table."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise OptionError(
            f"--train needs {' and '.join(missing)}, not installed here",
            fix='pip install "onnxq[torch,demo]", from a checkout pip install ".[torch,demo]"',
        )
    command = [sys.executable, "-m", _TRAINER, str(output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as child:
        assert child.stdout is not None
        found: dict[str, Any] | None = None
        for line in child.stdout:
            told = json.loads(line)
            found = told.get("result", found)
            progress(told.get("progress", "done"))
    if found is None or child.returncode:
        raise OnnxqError(
            f"the training ended with exit code {child.returncode}",
            fix=f"run 'python -m {_TRAINER} {output}', which shows why",
        )
    return found


def _accuracies(found: Mapping[str, Any], output: Path) -> RenderableType:
    columns = ("backend", "algorithm", "bits", "torch", "onnxruntime", "proof")
    title = f"Digits recognised of {found['images']}; float: {found['float']:.1%}"
    table = screen.new_table(title, *columns, right=("torch", "onnxruntime"))
    for row in found["backends"]:
        table.add_row(
            row["backend"],
            row["algorithm"],
            row["bits"],
            f"{row['torch']:.1%}",
            f"{row['onnxruntime']:.1%}",
            _proof(row),
        )
    return Group(
        table,
        "Trained in torch, deployed and proven. onnxruntime runs the ONNX file, or, if that is a",
        "float model with ranges beside it, the network both describe: not the vendor's tool.",
        f"trained in {found['seconds']:.0f} s; files: {output}/BACKEND/",
    )
