"""The command that quantizes a float model."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxq.cli import failures
from onnxq.cli.completion import backend_names
from onnxq.cli.options import (
    PATH,
    Explain,
    Json,
    ModelPath,
    NoVerify,
    OutputFolder,
    VariantName,
    show,
)
from onnxq.cli.progress import progress_line
from onnxq.cli.report import ReportFile, check_report_file
from onnxq.disk.file_set import check_folder
from onnxq.errors import OnnxqError, OptionError
from onnxq.quant.settings import Settings
from onnxq.running.records import Data
from onnxq.storage.model_files import read_bytes
from onnxq.views.quantization import quantization
from onnxq.workflows.quantize import quantize
from onnxq.workflows.quantizing.float_layers import Metric


def _file(name: str, text: str) -> Any:
    return typer.Option(name, help=text, **PATH)


def quantize_(
    model: ModelPath,
    output: OutputFolder,
    backend: Annotated[
        str | None,
        typer.Option("--backend", "-b", help="See 'onnxq backends'.", autocompletion=backend_names),
    ] = None,
    data: Data = None,
    variant: VariantName = None,
    settings: Annotated[Path | None, _file("--settings", "JSON list of rules for layers.")] = None,
    recipe: Annotated[
        Path | None, _file("--recipe", "Apply the choices of an earlier quantization.")
    ] = None,
    statistics: Annotated[
        Path | None, _file("--statistics", "Statistics written by 'onnxq calibrate'.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="How ranges are chosen: min-max, moving-average, percentile:99.99, mse or "
            "entropy. Default: the best of several, measured.",
        ),
    ] = None,
    keep_float: Annotated[
        int, typer.Option("--keep-float", min=0, help="Number of layers that stay float.")
    ] = 0,
    target_sqnr: Annotated[
        float | None,
        typer.Option("--target-sqnr", help="Keep as few layers in float as reach this SQNR in dB."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="FILE.py:FUNCTION or MODULE:FUNCTION that rates a model."),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option("--max-drop", help="Largest drop of the metric: as few layers in float."),
    ] = None,
    no_smooth: Annotated[
        bool,
        typer.Option(
            "--no-smooth", help="Do not make channels more alike (SmoothQuant, equalization)."
        ),
    ] = False,
    no_bias_correction: Annotated[
        bool,
        typer.Option("--no-bias-correction", help="Do not make up for rounded weights in biases."),
    ] = False,
    rounding: Annotated[
        str | None,
        typer.Option(
            "--rounding",
            help="How weights of fewer than 8 bits, and those of small windows, are rounded: gptq "
            "(needs data) or nearest. Default: what is better.",
        ),
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, help="Most samples of the data to use.")
    ] = None,
    no_verify: NoVerify = False,
    explain: Explain = False,
    report_file: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Quantize a float model for a backend with typical data, prove the files, measure the cost."""
    check_folder(output)
    check_report_file(report_file, model, data, settings, recipe, statistics)
    rules = None if settings is None else _rules(settings)
    rated = None if metric is None else _metric(metric)
    with progress_line(as_json) as progress:
        with failures.nothing_written():
            done = quantize(
                model,
                backend,
                data,
                variant=variant,
                settings=rules,
                recipe=recipe,
                statistics=statistics,
                method=method,
                smooth=not no_smooth,
                bias_correction=not no_bias_correction,
                rounding=rounding,
                keep_float=keep_float,
                target_sqnr=target_sqnr,
                metric=rated,
                max_drop=max_drop,
                samples=samples,
                verify=not no_verify,
                measure_latency=not no_verify,
                progress=progress,
            )
        progress("writing files")
        folder = failures.save(done, output)
        if report_file is not None:
            done.full_report(data, samples=samples, progress=progress).save(report_file)
        failures.look(done, progress)
    show(as_json, done.to_json, lambda: quantization(done, explain))
    failures.finish(done, folder, as_json)


def _rules(path: Path) -> Settings:
    try:
        return Settings.loads(read_bytes(path).decode())
    except UnicodeDecodeError:
        raise OptionError(f"'{path}' is not a text file", fix="give a JSON file") from None
    except OnnxqError as error:
        raise type(error)(f"'{path}': {error.what}", fix=error.fix) from error


def _metric(text: str) -> Metric:
    """The function that `--metric` names."""
    place, _, name = text.rpartition(":")
    fix = "write it like metric.py:accuracy; it gets a function from inputs to outputs"
    if not place or not name:
        raise OptionError(f"'{text}' names no function", fix=fix)
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location("onnxq_metric", place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        found = getattr(module, name)
    except (ImportError, OSError, AttributeError, SyntaxError) as error:
        raise OptionError(f"the metric '{text}' cannot be loaded: {error}", fix=fix) from error
    if not callable(found):
        raise OptionError(f"the metric '{text}' is not a function", fix=fix)
    return found  # type: ignore[no-any-return]
