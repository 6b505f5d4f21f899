"""Messages of the command line on failure: errors, and conversions without a proof."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from onnxq import process
from onnxq.cli.options import show_verdict
from onnxq.cli.usage_errors import in_words
from onnxq.errors import OnnxqError
from onnxq.proof.judging import fault
from onnxq.proof.prove import COST
from onnxq.views import screen
from onnxq.workflows.artifacts import MadeFiles
from onnxq.workflows.convert import Conversion

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""The exception typer raises for invalid usage; it has no public name."""

INTERRUPTED = "interrupted; nothing was written"


@contextlib.contextmanager
def nothing_written() -> Iterator[None]:
    """Say of a command that takes long, if it is interrupted here, that it left nothing."""
    try:
        yield
    except BaseException as error:
        # A library may turn the interrupt into an error of its own.
        if isinstance(error, KeyboardInterrupt) or process.was_interrupted():
            _tell_person([INTERRUPTED])
        raise


def tell_usage(error: Any, as_json: bool) -> None:
    """Print the usage of a command and what is wrong; with `as_json` also as JSON."""
    if type(error).__name__ == "NoArgsIsHelpError":  # no command: the help is all there is to say
        _tell_person(error.ctx.get_help().splitlines())
        return
    what, fix = in_words(error)
    if as_json:
        _tell_program(what, fix)
    usage = [] if error.ctx is None else error.ctx.get_usage().splitlines()
    _tell_person(usage)
    _tell_person([f"error: {what}", f"  next: {fix}"], style="red")


def tell(error: Exception, as_json: bool, debug: bool = False) -> None:
    """Print an error and the next step for people; with `as_json` also as JSON."""
    if debug:
        _tell_person(
            line for part in traceback.format_exception(error) for line in part.split("\n")
        )
        return
    if isinstance(error, OnnxqError):
        what, fix = error.what, error.fix
    else:  # a fault of onnxq or of the machine
        what = f"{type(error).__name__}: {error}"
        fix = "run again with --debug and report the traceback"
    if as_json:
        _tell_program(what, fix)
    notes = [f"  {note}" for note in getattr(error, "__notes__", [])]
    _tell_person([f"error: {what}", *notes, f"  next: {fix}"], style="red")


def tell_lost(why: str) -> None:
    """Print that standard output did not take all of the output."""
    what = f"error: cannot write to standard output ({why})"
    _tell_person([what, "  next: free some disk space, or send the output elsewhere"], style="red")


def _tell_person(lines: Iterable[str], style: str = "") -> None:
    """Print lines on standard error, the first in a style; a failure here cannot be reported."""
    console = screen.console(stderr=True)
    with contextlib.suppress(OSError):
        for line in lines:
            console.print(line, style=style or None, soft_wrap=True)
            style = ""


def _tell_program(what: str, fix: str) -> None:
    with contextlib.suppress(OSError):  # reported at the end, see `tell_lost`
        sys.stdout.write(json.dumps({"error": what, "next": fix}) + "\n")


def save(done: MadeFiles, output: Path) -> Path:
    """Write the files; returns their folder.

    Files of a failed proof go into a folder of their own: files proven earlier stay.
    """
    folder = output / "unproven" if done.proofs and not done.proven else output
    done.save(folder)
    return folder


def not_proven(done: Conversion, folder: Path) -> str:
    """Why the proof failed, the next step, and where the files are."""
    kept = f"\n  the files were written to {folder}; {folder.parent} itself is unchanged"
    return _reason(done, folder) + kept


def _reason(done: Conversion, folder: Path) -> str:
    failed = [proof for proof in done.proofs if not proof.passed]
    nan = [o.name for proof in failed for o in proof.report.outputs if o.source_nan]
    widened = [r for trace in done.traces if trace.name == "widen-range" for r in trace.rewrites]
    if [proof.what for proof in failed] == [COST]:
        if done.change is not None and {t.name for t in done.change.traces} == {"widen-range"}:
            return (
                f"{done.backend.name} has one code more than {len(widened)} activations were "
                "trained with, and uses it for values beyond their ranges. On these inputs that "
                f"changes the outputs too much; otherwise the files in {folder} match the model.\n"
                "  next: give inputs like the training data with --data, few of which go beyond "
                "the ranges"
            )
        return (
            f"the files in {folder} match the changed network, but moving its quantizers changed "
            "its outputs too much.\n"
            "  next: measure with typical inputs (--data), since random ones go beyond the ranges; "
            f"or train or quantize with {done.backend.name}'s scheme, with ranges no wider than "
            "the data needs; --min-sqnr DB sets another limit"
        )
    if failed and all(proof.refused and proof.report.passed for proof in failed):
        return (
            "onnxruntime rejects the optimised model; without optimisation the files in "
            f"{folder} match the model.\n"
            "  next: see the notes for the reason, or run with graph optimisation disabled"
        )
    if nan:
        return (
            f"the source model itself computes NaN at '{nan[0]}', so the files in {folder} "
            "cannot be compared.\n"
            "  next: check what is before it in the source model, or give other inputs with --data"
        )
    for proof in failed:
        found = fault(proof.report)
        if found is not None:
            return (
                f"the files in {folder} do not match the model.\n"
                f"  {proof.what}: {found[0]}\n  next: {found[1]}"
            )
    return (
        f"the files in {folder} do not match the model.\n"
        "  next: compare layer by layer with "
        "'onnxq verify MODEL FILE --per-layer', or see what the passes did with --explain"
    )


def look(done: Conversion, progress: Callable[[str], None]) -> None:
    """Let lint look at the files now, which takes its time, and not when they are shown."""
    progress(f"checking for {done.backend.name}")
    _ = done.findings


def finish(done: Conversion, output: Path, as_json: bool) -> None:
    """Print the verdict of a conversion; exit with 1 if the files are not to be trusted."""
    if any(finding.severity == "error" for finding in done.findings):
        screen.console(stderr=as_json).print(
            f"written to {output}, but {done.backend.name} will reject it or compute something "
            "else: see the lint errors",
            style="bold red",
        )
        raise typer.Exit(1)
    otherwise = not_proven(done, output)
    show_verdict(as_json, done, output, otherwise, changed=done.change is not None)
