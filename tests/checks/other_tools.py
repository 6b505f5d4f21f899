"""Files of other tools: each is read and compared with what its own tool or a runtime computes.

    python -m tests.checks.other_tools docs/dialects.md

writes the table of all files. They lie beside the repository (`../shared/fixtures`) and are not
part of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG
from onnxq.dialects.quantizing_operators import check_readable
from onnxq.errors import LoadError, OnnxqError
from onnxq.graph import Model, load
from onnxq.proof.verify import verify
from onnxq.reading import canonical, constants_frozen
from onnxq.running import sessions
from onnxq.running.integer_reference import holds_integer_operators
from onnxq.workflows.encodings import read_content, with_encodings
from onnxq.workflows.summary import summarize
from passes.to_qdq import ToQdq
from tests.models.build import apply
from tests.models.foreign_files import FOLDER

FIXTURES = sorted(p for p in FOLDER.glob("*/*") if p.is_dir())


@dataclass(frozen=True)
class Outcome:
    """What became of one file."""

    name: str
    read: bool
    dialects: str = ""
    quantizers: int = 0
    oracle: str = ""
    """What the canonical form was compared with."""
    difference: float = 0.0
    """Largest difference to it, relative to the largest output."""
    steps: float | None = None
    """Largest difference in steps of the output's own scale, where it has one."""
    written: float = 0.0
    """Largest difference of the QDQ written from it, relative."""
    reason: str = ""
    """Why it was refused."""


def name_of(fixture: Path) -> str:
    """Model and variant."""
    return f"{fixture.parent.name}/{fixture.name}"


def samples(fixture: Path, dtype: np.dtype) -> np.ndarray:
    """The inputs that the tools' own results belong to, one a row."""
    return np.load(fixture.parent / "test.npz")["x"].astype(dtype)


def outputs(session: sessions.Session, xs: np.ndarray) -> list[np.ndarray]:
    """All outputs for each input, one input at a time."""
    (spec,) = session.inputs
    runs = [session.run({spec.name: xs[i : i + 1]}) for i in range(len(xs))]
    return [np.concatenate([r[n] for r in runs]) for n in runs[0]]


def relative(left: Iterable[np.ndarray], right: Iterable[np.ndarray]) -> float:
    """Largest difference, relative to the largest value of the right ones."""
    worst = 0.0
    for a, b in zip(left, right, strict=True):
        a, b = a.astype(np.float64), b.astype(np.float64).reshape(a.shape)
        worst = max(worst, float(np.max(np.abs(a - b)) / np.max(np.abs(b))))
    return worst


def examine(fixture: Path) -> Outcome:
    """Read one file and compare it."""
    name = name_of(fixture)
    path = fixture / "model.onnx"
    if not path.exists():
        return Outcome(name, read=False, reason="there is no ONNX file")
    try:
        source = load(path)
        check_readable(source)
        model, _ = canonical(source)
    except OnnxqError as error:
        return Outcome(name, read=False, reason=error.what)
    summary = summarize(source)
    dialects, beside = ", ".join(summary.dialects), False
    if not model.nodes(FAKE_QUANTIZE, FAKE_QUANTIZE_LOG):
        try:
            model, dialects = _with_side_file(fixture, model)
            beside = True
        except OnnxqError as error:
            why = [skip.reason for skip in summary.unread] or [error.what]
            return Outcome(name, read=False, reason=why[0].replace(f"{fixture}/", ""))
    found = model.nodes(FAKE_QUANTIZE, FAKE_QUANTIZE_LOG)
    session = sessions.reference(model)
    xs = samples(fixture, session.inputs[0].dtype)
    mine = outputs(session, xs)
    oracle, want = _oracle(fixture, source, xs, beside)
    written, _ = apply(model, ToQdq())
    again = outputs(sessions.reference(written), xs)
    steps = None
    if oracle.startswith("integer"):
        report = verify(path, model, [{session.inputs[0].name: x[None]} for x in xs])
        steps = max((d.max for d in report.outputs if d.unit == "steps"), default=None)
    return Outcome(
        name,
        read=True,
        dialects=dialects,
        quantizers=len(found),
        oracle=oracle,
        difference=relative(mine, want),
        steps=steps,
        written=relative(again, mine),
    )


def _with_side_file(fixture: Path, model: Model) -> tuple[Model, str]:
    """The model quantized as the one side file says that onnxq knows, and its format."""
    refused: OnnxqError = LoadError("no quantizers in the ONNX file", fix="give a quantized one")
    for path in sorted(fixture.iterdir()):
        if path.suffix in (".onnx", ".npz") or path.name == "meta.json":
            continue
        try:
            found, _ = read_content(path)
            quantized, _ = with_encodings(model, path, allow_missing=True)
        except OnnxqError as error:
            refused = error
            continue
        return quantized, f"side file ({found.name})"
    raise refused


def _oracle(
    fixture: Path, source: Model, xs: np.ndarray, beside: bool
) -> tuple[str, list[np.ndarray]]:
    """What the file should compute: its own numbers in a runtime, else those its tool gave."""
    if not beside and holds_integer_operators(source.to_proto()):
        return "integer evaluation", outputs(sessions.reference(source), xs)
    stored = fixture / "expected.npz"
    try:
        if not (beside and stored.exists()):
            session = sessions.reference(constants_frozen(source))
            return "onnxruntime", outputs(session, xs)
    except OnnxqError:
        if not stored.exists():
            raise
    expected = np.load(stored)
    return "the tool's own simulation", [expected[key] for key in expected]


def document(found: Iterable[Outcome]) -> str:
    """The page of all files."""
    rows = list(found)
    count = sum(o.read for o in rows)
    lines = [
        "# Files of other tools",
        "",
        "Which quantized ONNX files onnxq reads, tried on files that other tools wrote for two",
        "small networks (A1: a residual CNN, A2: a transformer encoder). This page is made by",
        "`python -m tests.checks.other_tools docs/dialects.md`; a test keeps it true.",
        "",
        f"**{count} of {len(rows)} are read**, the others are refused for the reason given.",
        "",
        "A file that onnxruntime runs must compute the same in canonical form, bit for bit unless",
        "a difference is shown. Integer operators are compared with an exact integer evaluation",
        "(onnxruntime's kernels saturate on some CPUs), the rest with the tool's own simulation.",
        "Differences are relative to the largest output.",
        "",
        "Simulations compute in float32 in another order: values half way between two codes then",
        "get the other neighbour, and the outputs differ by a step. What it is for MQBench and",
        "PPQ is shown in `test_mqbench_fixtures.py` and `test_esp_ppq_fixtures.py`, both in",
        "`tests/suites`.",
        "",
        "| file | dialects | quantizers | compared with | difference | written as QDQ |",
        "|---|---|---:|---|---:|---:|",
    ]
    for o in rows:
        if not o.read:
            continue
        steps = "" if o.steps is None else f" ({o.steps:.2g} steps)"
        lines.append(
            f"| {o.name} | {o.dialects} | {o.quantizers} | {o.oracle} | "
            f"{_number(o.difference)}{steps} | {_number(o.written)} |"
        )
    lines += ["", "## Refused", "", "| file | reason |", "|---|---|"]
    lines += [f"| {o.name} | {o.reason} |" for o in rows if not o.read]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.0e}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document(map(examine, FIXTURES)), encoding="utf-8")
