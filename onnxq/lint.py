"""Looks at a model for one backend: what the target refuses, runs in float or computes wrongly.

A rule is a value (`onnxq.lint_rule.LintRule`). Some hold for all targets (`lint_findings`); a
backend lists more in its `lint` field, which may come from any package.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxq.backend import Backend, OnnxFile
from onnxq.convert import canonical, convert
from onnxq.dialects import check_readable
from onnxq.discovery import find_backend
from onnxq.errors import BackendError, LoadError
from onnxq.fake_quantize import FAKE_QUANTIZE
from onnxq.graph import Model, load
from onnxq.lint_findings import findings
from onnxq.lint_rule import Finding, Severity, Subject


@dataclass(frozen=True)
class LintReport:
    """What was found in one model."""

    backend: str
    model: str
    findings: tuple[Finding, ...]

    def count(self, severity: Severity) -> int:
        """How many findings of that severity there are."""
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


def lint(model: Model, backend: str | Backend, name: str = "model") -> LintReport:
    """Look at a model as the target reads it; a canonical one is converted first."""
    if isinstance(backend, str):
        backend = find_backend(backend)
    check_readable(model)
    return LintReport(backend.name, name, findings(_subject(model, backend)))


def lint_path(path: Path, backend: str | Backend) -> list[LintReport]:
    """Look at a model, or at every model for `backend` in a folder that `convert` wrote."""
    if isinstance(backend, str):
        backend = find_backend(backend)
    return [lint(load(p), backend, str(p)) for p in _models(path, backend)]


def _models(path: Path, backend: Backend) -> list[Path]:
    if not path.is_dir():
        return [path]
    suffixes = [o.suffix for o in backend.outputs if isinstance(o, OnnxFile)][:1]
    found = sorted(p for s in suffixes for p in path.glob(f"*{s}"))
    if not found:
        wanted = f"no file '*{suffixes[0]}'" if suffixes else "nothing to look for"
        raise LoadError(
            f"'{path}' holds {wanted}: it was not written by 'onnxq convert' for {backend.name}",
            fix="give the folder that convert wrote, or an ONNX file",
        )
    return found


def _subject(model: Model, backend: Backend) -> Subject:
    if backend.writes and model.nodes(FAKE_QUANTIZE):
        # What stands in the way of a conversion is found below, tensor by tensor.
        with contextlib.suppress(BackendError):
            model = convert(model, backend, verify=False).model
    return Subject(backend, model, canonical(model)[0])
