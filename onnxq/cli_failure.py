"""What the command line says where something failed: errors, and conversions without a proof."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from onnxq import render
from onnxq.convert import Conversion
from onnxq.errors import OnnxqError
from onnxq.made_files import MadeFiles
from onnxq.prove import COST


def tell(error: Exception, as_json: bool) -> None:
    """Print an error and the next step for people; with `as_json` for a program as well."""
    if isinstance(error, OnnxqError):
        what, fix = error.what, error.fix
    else:  # a fault of onnxq or of the machine
        what = f"{type(error).__name__}: {error}"
        fix = "run again with --debug and report what it shows"
    if as_json:
        sys.stdout.write(json.dumps({"error": what, "next": fix}) + "\n")
    console = render.console(stderr=True)
    console.print(f"error: {what}", style="red", markup=False, soft_wrap=True)
    for note in getattr(error, "__notes__", []):
        console.print(f"  {note}", markup=False, soft_wrap=True)
    console.print(f"  next: {fix}", markup=False, soft_wrap=True)


def save(done: MadeFiles, output: Path) -> Path:
    """Write the files; returns where.

    Those of a failed proof go into a folder of their own: what was proven earlier stays.
    """
    folder = output / "unproven" if done.proofs and not done.proven else output
    done.save(folder)
    return folder


def not_proven(done: Conversion, folder: Path) -> str:
    """Why the proof failed, the next step, and what became of the files."""
    kept = f"\n  the files were kept apart in {folder}: what lies in {folder.parent} is as it was"
    return _reason(done, folder) + kept


def _reason(done: Conversion, folder: Path) -> str:
    failed = [proof for proof in done.proofs if not proof.passed]
    nan = [o.name for proof in failed for o in proof.report.outputs if o.source_nan]
    if [proof.what for proof in failed] == [COST]:
        return (
            f"the files in {folder} are what the network became, but moving its quantizers cost "
            "too much of its outputs.\n"
            f"  next: train or quantize with {done.backend.name}'s scheme, on ranges no wider "
            "than the data need"
        )
    if failed and all(proof.refused and proof.report.passed for proof in failed):
        return (
            f"onnxruntime refuses the optimised model; without optimisation the files in {folder} "
            "compute what the model does.\n"
            "  next: see the notes for its reason, or run with graph optimisation disabled"
        )
    if nan:
        return (
            f"the source itself gives NaN at '{nan[0]}', so the files in {folder} cannot be "
            "compared.\n"
            "  next: look at what stands before it in the source, or give other inputs with --data"
        )
    return (
        f"the files in {folder} do not compute what the model does.\n"
        "  next: compare layer by layer with 'onnxq verify MODEL FILE --per-layer', or see "
        "what the passes did with --explain"
    )
