"""Checks a model for one backend: what the target rejects, runs in float or computes wrongly.

A rule is a value (`onnxq.lint.rule.LintRule`). Some hold for all targets (`lint_findings`); a
backend lists more in its `lint` field, which may come from any package.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.backend import Backend, OnnxFile, TableFile, chosen_backend
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.dialects.quantizing_operators import check_readable
from onnxq.errors import BackendError, LoadError, SaveError
from onnxq.graph import Model, load
from onnxq.lint.findings import findings
from onnxq.lint.rule import Finding, Severity, Subject
from onnxq.parsing.argument_types import PATH, takes
from onnxq.reading import canonical
from onnxq.views.shown_result import ShownResult
from onnxq.workflows.encodings import with_encodings
from onnxq.workflows.fit_to_backend import fit
from onnxq.workflows.write_outputs import write

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, repr=False)
class LintReport(ShownResult):
    """The findings in one model."""

    backend: str
    model: str
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.count(s)} {s}s" for s in ("error", "warning"))
        return f"<LintReport on {self.model} for {self.backend}: {counts}>"

    def _view(self, most: int) -> RenderableType:
        from onnxq.views import lint_tables

        return lint_tables.reports([self])

    def count(self, severity: Severity) -> int:
        """The number of findings of that severity."""
        return sum(f.severity == severity for f in self.findings)

    def passed(self, strict: bool = False) -> bool:
        """Whether there are no errors; `strict`: and no warnings."""
        return not self.count("error") and not (strict and self.count("warning"))

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "backend": self.backend,
            "model": self.model,
            "passed": self.passed(),
            "counts": dict(Counter(f.severity for f in self.findings)),
            "findings": [f.to_json() for f in self.findings],
        }


def lint(
    model: Model, backend: str | Backend, name: str = "model", *, variant: str | None = None
) -> LintReport:
    """Check a model as the target reads it; a canonical one is converted first.

    `variant` is the way to deploy that it is converted with.
    """
    backend = chosen_backend(backend, variant)
    check_readable(model)
    return LintReport(backend.name, name, findings(subject_of(model, backend)))


@takes(path=PATH, backend=(str, Backend), variant=(str, None))
def lint_path(
    path: Path, backend: str | Backend, *, variant: str | None = None
) -> list[LintReport]:
    """Check a model, or every model for `backend` in a folder that `convert` wrote.

    With `variant` those are the models of that way to deploy, else those of all.
    """
    backend = chosen_backend(backend, variant)
    return [lint(loaded_with_sides(p, backend), backend, str(p)) for p in _models(path, backend)]


def loaded_with_sides(path: Path, backend: Backend) -> Model:
    """A model; a clean one that `convert` wrote together with the quantization beside it."""
    model = load(path)
    for table in backend.outputs:
        if isinstance(table, TableFile) and not table.format.magnitudes and _is_clean(backend):
            side = path.with_name(path.name.removesuffix(table.beside) + table.suffix)
            if path.name.endswith(table.beside) and os.path.exists(side):
                return with_encodings(model, side, allow_missing=True)[0]
    return model


def _is_clean(backend: Backend) -> bool:
    """Whether the model to deploy is float."""
    first = backend.outputs[0]
    return isinstance(first, OnnxFile) and first.clean


def _models(path: Path, backend: Backend) -> list[Path]:
    if not os.path.isdir(path):
        return [path]
    ways = [backend, *map(backend.variant, backend.variants)]
    firsts = [[o.suffix for o in way.outputs if isinstance(o, OnnxFile)][:1] for way in ways]
    suffixes = list(dict.fromkeys(suffix for first in firsts for suffix in first))
    found = sorted(p for s in suffixes for p in path.glob(f"*{s}"))
    if not found:
        wanted = f"no file '*{suffixes[0]}'" if suffixes else "no model files"
        raise LoadError(
            f"'{path}' contains {wanted}: it was not written by 'onnxq convert' for {backend.name}",
            fix="give the folder written by 'onnxq convert', or an ONNX file",
        )
    return found


def subject_of(model: Model, backend: Backend) -> Subject:
    """A model as the target reads it: a canonical one is converted first, if it can be."""
    read = canonical(model)[0]
    if not backend.writes or not model.nodes(*QUANTIZERS):
        return Subject(backend, model, read)
    # Whatever prevents a conversion is found by the rules, tensor by tensor.
    try:
        legal = fit(read, backend).model
    except BackendError:
        return Subject(backend, model, read)
    if not _is_clean(backend):
        with contextlib.suppress(BackendError, SaveError):
            made = write(legal, backend).model
            return Subject(backend, made, canonical(made)[0], model)
    return Subject(backend, model, legal, model)
