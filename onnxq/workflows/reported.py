"""The report on files that a conversion made: a part of `Conversion`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.backend import Backend
from onnxq.graph import Model
from onnxq.lint.findings import findings
from onnxq.lint.pair_saturation import is_about
from onnxq.lint.rule import Finding, Subject
from onnxq.proof.change import Change
from onnxq.proof.prove import Proof
from onnxq.proof.verify import Report
from onnxq.running.cpu import this_cpu
from onnxq.running.records import Data
from onnxq.workflows.artifacts import Artifact

if TYPE_CHECKING:
    from onnxq.workflows.report import ModelReport


class Reported:
    """What `Conversion` has beside its files: the page about them."""

    backend: Backend
    variant: str | None
    source: Model
    stem: str
    artifacts: tuple[Artifact, ...]
    files: list[Path]
    proofs: tuple[Proof, ...]
    cost: Report | None
    change: Change | None
    subject: Subject
    notes: list[str]

    def full_report(
        self,
        data: Data = None,
        *,
        against: Model | None = None,
        samples: int | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> ModelReport:
        """The report on the files: proof, coverage, error by layer, distributions, what to do.

        `against` is the model to compare with, by default the source. `data` are typical inputs, of
        which `samples` at most are used; without them random inputs are compared.
        """
        # Imported by whoever wants a report: most conversions are over before that has been read.
        from onnxq.reporting.commands import Names
        from onnxq.workflows.report import made_report, shown_path
        from onnxq.workflows.summary import summarize

        trusted = self._trusted() if against is None else against
        changes: Sequence[str] = () if self.change is None else self.change.notes()
        return made_report(
            self.subject,
            trusted,
            names=Names(
                self._first_file(),
                self.backend.name,
                self.variant,
                shown_path(trusted),
                data=os.fspath(data) if isinstance(data, str | os.PathLike) else None,
            ),
            summary=summarize(self.subject.model),
            data=data,
            findings=self.findings,
            proofs=self.proofs,
            cost=self.cost,
            changes=changes,
            notes=[note for note in self.notes if note not in changes],
            most=samples,
            progress=progress,
        )

    def report_html(
        self,
        data: Data = None,
        *,
        against: Model | None = None,
        samples: int | None = None,
    ) -> str:
        """The report as one HTML page that needs no other file; see `full_report`."""
        return self.full_report(data, against=against, samples=samples).html

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Lint findings for the model to deploy."""
        return findings(self.subject)

    @property
    def concerning_other_cpus(self) -> tuple[Finding, ...]:
        """Findings about CPUs that are neither this one nor meant by the variant."""
        cpu = this_cpu()
        return tuple(f for f in self.findings if not is_about(f, cpu, self.variant))

    def _trusted(self) -> Model:
        """The model that a report compares with."""
        return self.source

    def _first_file(self) -> str:
        from onnxq.workflows.report import short_path

        if self.files:
            return short_path(self.files[0])
        return f"{self.stem}{self.artifacts[0].suffix}"


__all__ = ["Reported"]
