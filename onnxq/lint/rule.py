"""Lint rules and their findings: a rule is a value that a backend lists."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from onnxq.analysis.accumulator_bounds import Bounds, bounds
from onnxq.errors import OptionError
from onnxq.graph import Model
from onnxq.ort_fusion.prediction import Outlook, predict
from onnxq.pipeline import Pipeline
from passes.collect_qparams import CollectQParams
from passes.infer_shapes import InferShapes
from passes.remove_fake_quant import RemoveFakeQuant

if TYPE_CHECKING:
    from onnxq.backend import Backend

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
"""The worst first."""


@dataclass(frozen=True)
class Finding:
    """One thing that a target will not do as the user may expect."""

    severity: Severity
    """error: the target rejects the file or computes something else. warning: it costs speed or
    accuracy. info: good to know."""
    where: str
    """The node or tensor."""
    rule: str
    message: str
    fix: str

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise OptionError(
                f"lint rule '{self.rule}': severity {self.severity!r}",
                fix=f"choose from: {', '.join(SEVERITIES)}",
            )
        if not isinstance(self.where, str):
            raise OptionError(
                f"lint rule '{self.rule}': the place is a {type(self.where).__name__}, not text",
                fix="give the name of a tensor, or onnxq.edit.describe(node)",
            )

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Subject:
    """A model that is checked for one backend."""

    backend: Backend
    model: Model
    """As the target reads it."""
    canonical: Model
    """The same with every quantizer as one FakeQuantize."""
    source: Model | None = None
    """The source model, with the user's names; None if it is `model` itself."""

    def __repr__(self) -> str:
        return f"<Subject for {self.backend.name}: {self.model!r}>"

    @functools.cached_property
    def collected(self) -> Model:
        """The canonical model with its quantization in the table as well."""
        return Pipeline(CollectQParams()).run(self.canonical).model

    @functools.cached_property
    def plain(self) -> Model:
        """The float network beneath its quantizers, with the names that the table uses.

        Types are inferred: without them the arithmetic of shapes looks like that of activations.
        """
        return Pipeline(RemoveFakeQuant(), InferShapes()).run(self.collected).model

    @functools.cached_property
    def bounds(self) -> tuple[Bounds, ...]:
        """The bounds of the sums in its layers."""
        return tuple(bounds(self.canonical))

    @functools.cached_property
    def outlook(self) -> Outlook:
        """The prediction of what onnxruntime's default session does with it."""
        return predict(self.model)


@dataclass(frozen=True)
class LintRule:
    """One property of a model to check."""

    name: str
    summary: str
    check: Callable[[Subject], Iterable[Finding]]
