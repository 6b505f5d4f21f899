"""Everything that a report tells, apart from how it looks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxq.proof.difference import TensorDiff
from onnxq.proof.prove import Proof
from onnxq.proof.verify import Report
from onnxq.reporting.advice import Advice, count
from onnxq.reporting.commands import Names
from onnxq.reporting.distribution import Distribution
from onnxq.reporting.measured import Measured
from onnxq.reporting.network import Layer
from onnxq.reporting.recasts import RecastGrid
from onnxq.timing.survey import FloatNode


@dataclass(frozen=True)
class Facts:
    """What a model is, in words and numbers."""

    title: str
    rows: Mapping[str, str]
    """What there is to know, such as opset and inputs, in words."""
    file_bytes: int | None = None
    """The size of its constants."""
    against_bytes: int | None = None
    """The same of the trusted model."""


@dataclass(frozen=True)
class Timing:
    """How long the model takes beside the trusted one."""

    milliseconds: float
    ratio: float | None
    """To the time of the trusted model; None if there is none."""
    islands: tuple[FloatNode, ...] = ()
    """The float operators beside kernels on codes, the most expensive first."""


@dataclass(frozen=True)
class Contents:
    """The contents of a report."""

    names: Names
    facts: Facts
    layers: tuple[Layer, ...]
    measured: Measured = field(default_factory=Measured)
    proofs: tuple[Proof, ...] = ()
    cost: Report | None = None
    """The difference at the outputs that a change of the quantizers causes."""
    distributions: tuple[Distribution, ...] = ()
    recasts: tuple[RecastGrid, ...] = ()
    changes: tuple[str, ...] = ()
    """What lossy passes changed, in words."""
    advice: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()
    timing: Timing | None = None
    refusal: tuple[str, str] | None = None
    """Why the model cannot be checked for the target, and the next step."""

    @property
    def precisions(self) -> Counter[str]:
        """How many operators run in each precision."""
        return Counter(layer.fate.precision for layer in self.layers)

    @property
    def coverage(self) -> float | None:
        """The share of operators on real numbers that run on codes; None if there are none."""
        each = self.precisions
        total = each["integer"] + each["float"]
        return each["integer"] / total if total else None

    @property
    def parameter_coverage(self) -> float | None:
        """The share of parameters in layers that run on codes."""
        weighted = [layer for layer in self.layers if layer.weight]
        total = sum(layer.parameters for layer in weighted)
        on_codes = sum(x.parameters for x in weighted if x.fate.precision == "integer")
        return on_codes / total if total else None

    @property
    def worst_output(self) -> TensorDiff | None:
        """The output that is furthest from the trusted model's."""
        outputs = () if self.measured.report is None else self.measured.report.outputs
        return min(outputs, key=lambda o: o.sqnr, default=None)

    @property
    def proven(self) -> bool | None:
        """Whether all proofs hold; None if there is none."""
        return all(p.passed for p in self.proofs) if self.proofs else None

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        worst = self.worst_output
        return {
            "model": self.facts.title,
            "against": self.names.against,
            "backend": self.names.backend,
            "variant": self.names.variant,
            "samples": self.measured.samples,
            "random_inputs": self.measured.random,
            "sqnr": None if worst is None or not math.isfinite(worst.sqnr) else worst.sqnr,
            "coverage": self.coverage,
            "parameter_coverage": self.parameter_coverage,
            "proven": self.proven,
            "counts": count(self.advice),
            "findings": [advice.to_json() for advice in self.advice],
            "layers": [layer.to_json() for layer in self.layers],
            "recasts": [each.to_json() for each in self.recasts],
            "notes": list(self.notes),
        }


__all__ = ["Contents", "Facts", "Timing"]
