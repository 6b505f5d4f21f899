"""The commands: what each takes, does and shows."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from onnxq import __version__
from onnxq.cli import failures, listings
from onnxq.cli.bench import bench
from onnxq.cli.calibrate import calibrate, merge
from onnxq.cli.command_words import CommandWords
from onnxq.cli.completion import pass_names
from onnxq.cli.demo import demo
from onnxq.cli.doctor import doctor
from onnxq.cli.encodings import encodings
from onnxq.cli.lint import explain, lint
from onnxq.cli.options import (
    MODEL,
    PATH,
    AllowMissing,
    BackendName,
    DumpFolder,
    EncodingFiles,
    Explain,
    Json,
    MaxMoved,
    MaxRelative,
    MaxSteps,
    ModelPath,
    NoVerify,
    OutputFolder,
    Samples,
    Seed,
    Strict,
    VariantName,
    WeightRanges,
    show,
    show_notes,
)
from onnxq.cli.paths import check_output_file
from onnxq.cli.pictures import with_pictures
from onnxq.cli.progress import progress_line
from onnxq.cli.quantize import quantize_
from onnxq.cli.report import ReportFile, check_report_file, report
from onnxq.cli.schema import schema
from onnxq.dialects.quantizing_operators import check_readable
from onnxq.disk.file_set import check_folder
from onnxq.errors import OptionError
from onnxq.graph import Model, load, save
from onnxq.pipeline import Dump, Pipeline
from onnxq.proof.prove import Proof
from onnxq.proof.verify import verify
from onnxq.reading import canonical as canonical_form
from onnxq.reading import readable_form
from onnxq.running.records import Data
from onnxq.views import screen, tables
from onnxq.workflows.convert import convert
from onnxq.workflows.encodings import Weights, with_encodings
from onnxq.workflows.report import report as model_report
from onnxq.workflows.summary import summarize
from passes.phases import READ

app = typer.Typer(
    name="onnxq",
    cls=CommandWords,
    help="Quantize ONNX networks, convert them for a runtime or chip, and prove the results.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("quantize", short_help="Quantize a float model for a backend, prove it.")(
    with_pictures(quantize_)
)


@app.command("convert", short_help="Convert a quantized model for a backend, prove it.")
@with_pictures
def convert_(
    model: ModelPath,
    backend: BackendName,
    output: OutputFolder,
    variant: VariantName = None,
    encodings: EncodingFiles = None,
    allow_missing: AllowMissing = False,
    strict: Strict = False,
    weights: WeightRanges = None,
    allow_requantize: Annotated[
        bool,
        typer.Option(
            "--allow-requantize",
            help="Move unsupported quantizers to the nearest grid that the target supports, or "
            "replace them by the target's own.",
        ),
    ] = False,
    min_sqnr: Annotated[
        float | None,
        typer.Option(
            "--min-sqnr",
            metavar="DB",
            help="Least ratio of signal to difference at each output, in dB, if the target needs "
            "changed results: a larger cost fails the proof.",
        ),
    ] = None,
    data: Data = None,
    no_verify: NoVerify = False,
    explain: Explain = False,
    dump: DumpFolder = None,
    samples: Samples = 4,
    seed: Seed = 0,
    report_file: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Convert a quantized model for a backend and prove the files."""
    check_folder(output)
    check_report_file(report_file, model, data, *(encodings or ()))
    with progress_line(as_json) as progress:
        done = convert(
            model,
            backend,
            variant=variant,
            data=data,
            encodings=encodings or (),
            allow_missing=allow_missing,
            strict=strict,
            weights=weights,
            allow_requantize=allow_requantize,
            min_sqnr=min_sqnr,
            verify=not no_verify,
            progress=progress,
            observers=() if dump is None else (Dump(dump),),
            count=samples,
            seed=seed,
        )
        progress("writing files")
        folder = failures.save(done, output)
        if report_file is not None:
            done.full_report(data, progress=progress).save(report_file)
        failures.look(done, progress)
    show(as_json, done.to_json, lambda: tables.conversion(done, explain))
    failures.finish(done, folder, as_json)


@app.command("run", short_help="Run only the given passes on a model.")
def run(
    model: ModelPath,
    passes: Annotated[
        str,
        typer.Option(
            "--passes",
            "-p",
            help='Such as "fold-batch-norm,to-qdq{opset=21}".',
            autocompletion=pass_names,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The ONNX file to write.", **PATH)],
    encodings: EncodingFiles = None,
    allow_missing: AllowMissing = False,
    strict: Strict = False,
    weights: WeightRanges = None,
    explain: Explain = False,
    dump: DumpFolder = None,
    as_json: Json = False,
) -> None:
    """Run only the given passes on a model. Readers run first if a pass needs them."""
    pipeline = Pipeline.parse(passes)
    if not len(pipeline):
        raise OptionError("no passes given", fix="'onnxq passes' lists them")
    check_output_file(output, ".onnx")
    canonical = any(step.needs_canonical for step in pipeline)
    if canonical:
        listed = {step.name for step in pipeline}
        missing = [step for step in READ if step.name not in listed]
        pipeline = Pipeline(*missing, *pipeline)
    with progress_line(as_json) as progress:
        progress(f"reading {model}")
        source, told = _quantized(load(model), encodings, allow_missing, strict, weights)
        if canonical:
            source = readable_form(source)
            check_readable(source)
        progress(f"running {len(pipeline)} passes")
        result = pipeline.run(source, *(() if dump is None else (Dump(dump),)), in_place=True)
        progress("writing")
        written = save(result.model, output)
    notes = told + result.model.export_notes
    show(
        as_json,
        lambda: {
            "pipeline": str(pipeline),
            "files": [str(f) for f in written],
            "notes": notes,
            "traces": [t.to_json() for t in result.traces],
        },
        lambda: tables.traces(result.traces, explain),
    )
    if not as_json:
        show_notes(notes)
        screen.console().print(f"written to {', '.join(map(str, written))}")


def _quantized(
    model: Model,
    encodings: list[Path] | None,
    allow_missing: bool,
    strict: bool,
    weights: Weights | None,
) -> tuple[Model, list[str]]:
    """`model`, or its canonical form with the quantization of its side files, and notes."""
    if encodings:
        model = canonical_form(model)[0]
        return with_encodings(
            model, encodings, allow_missing=allow_missing, strict=strict, weights=weights
        )
    if weights is not None or allow_missing or strict:
        raise OptionError(
            "--weights, --allow-missing and --strict only make sense with encodings",
            fix="add --encodings FILE",
        )
    return model, []


@app.command("verify", short_help="Compare two models, in quantization steps.")
@with_pictures
def verify_(
    trusted: Annotated[Path, typer.Argument(help="The trusted ONNX file.", **MODEL)],
    other: Annotated[Path, typer.Argument(help="The ONNX file to check.", **MODEL)],
    data: Data = None,
    per_layer: Annotated[
        bool, typer.Option("--per-layer", help="Also compare inner tensors with the same name.")
    ] = False,
    session: Annotated[
        Literal["reference", "deployed", "shipped"],
        typer.Option("--session", help="How onnxruntime runs the second model."),
    ] = "reference",
    max_steps: MaxSteps = 1.0,
    max_moved: MaxMoved = 0.01,
    max_relative: MaxRelative = 1e-3,
    samples: Samples = 4,
    seed: Seed = 0,
    report_file: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Compare two models on the same inputs, in quantization steps."""
    check_report_file(report_file, trusted, other, data)
    with progress_line(as_json) as progress:
        found = verify(
            trusted,
            other,
            data,
            per_layer=per_layer,
            sessions=("reference", session),
            count=samples,
            seed=seed,
            max_steps=max_steps,
            max_moved=max_moved,
            max_relative=max_relative,
            progress=progress,
        )
        if report_file is not None:
            proof = Proof(f"{other} beside {trusted}", found)
            page = model_report(
                *(other, trusted, data),
                count=samples,
                seed=seed,
                proofs=(proof,),
                progress=progress,
            )
            page.save(report_file)
    show(as_json, found.to_json, lambda: tables.report(found, per_layer))
    if not found.passed:
        raise typer.Exit(1)


@app.command("inspect", short_help="Show inputs, operators, quantizers and layers.")
def inspect(
    model: ModelPath,
    encodings: EncodingFiles = None,
    allow_missing: AllowMissing = False,
    strict: Strict = False,
    weights: WeightRanges = None,
    as_json: Json = False,
) -> None:
    """Show versions, operators, quantizers and quantized layers."""
    with progress_line(as_json) as progress:
        progress(f"reading {model}")
        source = load(model)
        quantized, notes = _quantized(source, encodings, allow_missing, strict, weights)
        progress("looking for quantizers")
        found = summarize(source)
        if encodings:
            beside = summarize(quantized)
            found = replace(found, table=beside.table, layers=beside.layers, notes=notes)
    show(as_json, found.to_json, lambda: tables.summary(found))


app.command("encodings", short_help="Split a model into a float model and a side file.")(
    with_pictures(encodings)
)
app.command("calibrate", short_help="Keep statistics of a float model on data.")(
    with_pictures(calibrate)
)
app.command("calibrate merge", short_help="Merge the statistics of several parts of the data.")(
    merge
)
app.command("lint", short_help="List what a backend rejects or runs in float.")(lint)
app.command("explain", short_help="Explain a tensor of a model, or a word.")(explain)
app.command("bench", short_help="Measure latencies side by side, and what costs time.")(
    with_pictures(bench)
)
app.command("report", short_help="Write one HTML page about a model.")(with_pictures(report))


app.command("doctor", short_help="Show what is installed here, and whether it works.")(doctor)
app.command("passes", short_help="List the passes, or show one with its options.")(listings.passes_)
app.command("backends", short_help="List the backends, or show one in full.")(listings.backends_)
app.command("formats", short_help="List the side-file formats, or show one.")(listings.formats_)
app.command("demo", short_help="Convert a small network for every backend.")(demo)
app.command("schema", short_help="Print the JSON Schema of a command's --json.")(schema)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"onnxq {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Options of all commands."""
