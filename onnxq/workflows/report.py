"""One page about a model: summary, proof, coverage, errors, distributions, and what to do next.

    model ----------> as the target reads it --.
    trusted model ----------------------------- one pass over the data -> contents -> page
    data --------------------------------------'

Everything is optional but the model: what is missing is named on the page, with the command that
adds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import onnx_graphsurgeon as gs

from onnxq.backend import Backend, chosen_backend
from onnxq.dialects.quantizing_operators import check_readable
from onnxq.disk.file_set import FileSet, check_target
from onnxq.errors import OnnxqError
from onnxq.graph import Model, load
from onnxq.lint.findings import findings
from onnxq.lint.rule import Finding, Subject
from onnxq.parsing.argument_types import INTEGER, NUMBER, PATH, takes
from onnxq.proof.prove import Proof
from onnxq.reading import canonical
from onnxq.reporting.advice import count
from onnxq.reporting.commands import Names
from onnxq.reporting.contents import Contents, Facts, Timing
from onnxq.reporting.gathered import gather
from onnxq.reporting.model_explorer import write_model_explorer
from onnxq.reporting.page_views import decibels, percent
from onnxq.running.records import Data
from onnxq.workflows.bench import bench
from onnxq.workflows.lint_model import loaded_with_sides, subject_of
from onnxq.workflows.summary import Summary, summarize

Progress = Callable[[str], None]
BACKEND = "onnxruntime"
"""The target that a report checks for, if none is given."""


_FRAME = "width: 100%; height: 48rem; border: 0"


@dataclass(frozen=True, repr=False)
class ModelReport:
    """A report on one model."""

    contents: Contents

    @cached_property
    def html(self) -> str:
        """The page: one file that needs no other."""
        from onnxq.reporting.html_page import html_page  # templates are not needed for a summary

        return html_page(self.contents)

    @property
    def summary(self) -> str:
        """The report in one line."""
        contents, counts = self.contents, count(self.contents.advice)
        worst = contents.worst_output
        parts = [f"{percent(contents.coverage)} of the operators on integers"]
        if worst is not None:
            parts.append(f"{decibels(worst.sqnr)} at '{worst.name}'")
        for severity in ("error", "warning"):
            number = counts[severity]
            parts.append(f"{number} {severity}{'' if number == 1 else 's'}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"<ModelReport on {self.contents.facts.title}: {self.summary}>"

    def _repr_html_(self) -> str:
        """The page in a notebook, in a frame of its own."""
        return f'<iframe srcdoc="{escape(self.html)}" style="{_FRAME}"></iframe>'

    @takes(path=PATH)
    def save(self, path: str | Path) -> Path:
        """Write the page."""
        target = Path(path)
        check_target(target)
        with FileSet(target.parent, (target.name,)) as files:
            # A name of a file need not be valid text.
            files.stage(target.name).write(self.html.encode(errors="replace"))
        return target

    @takes(folder=PATH)
    def save_model_explorer(self, folder: str | Path) -> list[Path]:
        """Write the graph and its node data for Google's Model Explorer."""
        return write_model_explorer(self.contents, Path(folder))

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return self.contents.to_json()


@takes(
    model=(Model, *PATH),
    against=(Model, *PATH, None),
    data=(*PATH, Iterable, None),
    backend=(str, Backend),
    variant=(str, None),
    samples=(*INTEGER, None),
    count=INTEGER,
    seed=INTEGER,
    bench_seconds=NUMBER,
    progress=Callable,
)
def report(
    model: Model | str | Path,
    against: Model | str | Path | None = None,
    data: Data = None,
    *,
    backend: str | Backend = BACKEND,
    variant: str | None = None,
    samples: int | None = None,
    count: int = 4,
    seed: int = 0,
    bench_seconds: float = 0.0,
    proofs: Sequence[Proof] = (),
    progress: Progress = lambda _: None,
) -> ModelReport:
    """Make the report on `model`, checked for `backend`.

    `against` is the model to compare with, mostly the float one. `data` are typical inputs, as for
    `convert`, of which `samples` at most are used; they are read once. Without data, `count` random
    inputs are compared, and nothing is said about ranges. With `bench_seconds`, latencies are
    measured for about so long. `proofs` are comparisons that were made before.
    """
    target = chosen_backend(backend, variant)
    names = [_name(each) for each in (model, against)]
    if not isinstance(model, Model):
        progress(f"reading {model}")
        model = loaded_with_sides(Path(model), target)
    if against is not None and not isinstance(against, Model):
        progress(f"reading {against}")
        against = load(Path(against))
    progress(f"checking for {target.name}")
    subject, found, refusal = _checked(model, target)
    given = os.fspath(data) if isinstance(data, str | os.PathLike) else None
    return made_report(
        *(subject, against),
        data=data,
        names=Names(names[0] or "model.onnx", target.name, variant, names[1], data=given),
        summary=summarize(model),
        findings=found,
        proofs=proofs,
        timing=_timing(model, against, given, bench_seconds, seed, progress),
        refusal=refusal,
        most=samples,
        count=count,
        seed=seed,
        progress=progress,
    )


def made_report(
    subject: Subject,
    against: Model | None,
    *,
    names: Names,
    summary: Summary,
    notes: Sequence[str] = (),
    **others: Any,
) -> ModelReport:
    """The report on a model that was checked already; `others` are arguments of `gather`."""
    trusted = None if against is None else summarize(against)
    source = names.against if trusted is not None and trusted.table.is_empty else None
    if source is None and summary.table.is_empty and subject.collected.qparams.is_empty:
        source = names.model
    rows = {
        "inputs": "\n".join(f"{name}  {kind}" for name, kind in summary.inputs),
        "outputs": "\n".join(f"{name}  {kind}" for name, kind in summary.outputs),
        "operators": ", ".join(f"{op} {count}" for op, count in summary.ops.items()),
        "quantization": ", ".join(summary.dialects) or "none",
        "opset": ", ".join(f"{domain} {version}" for domain, version in summary.opsets.items()),
        "producer": summary.producer or "not stated",
    }
    facts = Facts(
        Path(names.model).name,
        {key: value for key, value in rows.items() if value},
        constant_bytes(subject.model),
        None if against is None else constant_bytes(against),
    )
    return ModelReport(
        gather(
            *(subject, replace(names, source=names.source or source), facts),
            against=against,
            notes=(*summary.notes, *notes),
            **others,
        )
    )


def shown_path(model: Model) -> str | None:
    """The file that a model was loaded from, as it is called from here."""
    return None if model.origin is None else short_path(model.origin.path)


def short_path(path: Path) -> str:
    """A path as it is called from here, if it is below."""
    whole = path.absolute()
    return os.path.relpath(whole) if whole.is_relative_to(Path.cwd()) else str(whole)


def constant_bytes(model: Model) -> int:
    """The size of the constants that nodes read."""
    found = {id(t): t for n in model.nodes() for t in n.inputs if isinstance(t, gs.Constant)}
    return sum(int(t._values.nbytes) for t in found.values())


def _name(model: Model | str | Path | None) -> str | None:
    if isinstance(model, Model):
        return shown_path(model)
    return None if model is None else os.fspath(model)


def _checked(
    model: Model, backend: Backend
) -> tuple[Subject, Sequence[Finding], tuple[str, str] | None]:
    """The model as the target reads it, what lint finds, or why it cannot be checked."""
    try:
        check_readable(model)
        subject = subject_of(model, backend)
        return subject, findings(subject), None
    except OnnxqError as error:
        return Subject(backend, model, canonical(model)[0]), (), (error.what, error.fix)


def _timing(
    model: Model,
    against: Model | None,
    data: str | None,
    seconds: float,
    seed: int,
    progress: Progress,
) -> Timing | None:
    if not seconds:
        return None
    models = {"model": model} if against is None else {"trusted": against, "model": model}
    *_, row = bench(models, data, seconds=seconds, seed=seed, progress=progress).models
    if row.milliseconds is None:
        return None
    ratio = None if against is None or row.ratio is None else row.ratio.median
    islands = () if row.survey is None else row.survey.float_nodes
    return Timing(row.milliseconds.median, ratio, islands)


__all__ = ["BACKEND", "ModelReport", "made_report", "report", "short_path", "shown_path"]
