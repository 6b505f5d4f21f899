"""Converts any quantized model to the files of a backend, with proof.

    read -> canonical source ----------------------------.
              |                                          |
              '-> fit -> legal canonical -> write -> files -> prove

With `allow_requantize`, a source that does not fit is recast: it gets the target's own quantizers,
with the ranges of its own.

Each step is a function of plain values that can be called alone: `read_source.read`,
`fit_to_backend.fit`, `write_outputs.write` and `onnxq.proof.prove.prove`. The model is read once:
fitting skips the readers at the start of the backend's pipeline.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.backend import Backend, chosen_backend
from onnxq.calibration.single_precision import in_single_precision, without_idle_casts
from onnxq.disk.data_file import Origin
from onnxq.errors import BackendError, OnnxqError, OptionError, PassError, SaveError
from onnxq.graph import Model, load
from onnxq.lint.findings import findings
from onnxq.lint.rule import Finding, Subject
from onnxq.parsing.argument_types import FLAG, INTEGER, NUMBER, PATH, takes
from onnxq.pass_ import Trace
from onnxq.pipeline import Observer, Pipeline
from onnxq.proof.change import Change
from onnxq.proof.prove import prove
from onnxq.proof.verify import Report
from onnxq.quant.qparam_table import QParamTable
from onnxq.workflows.artifacts import MadeFiles, written_apart
from onnxq.workflows.encodings import Encodings, Weights
from onnxq.workflows.fit_to_backend import Fitted, fit
from onnxq.workflows.read_source import read
from onnxq.workflows.recast import NothingToPlace, missing_ranges, recast
from onnxq.workflows.reported import Reported
from onnxq.workflows.stale_files import stale_files
from onnxq.workflows.write_outputs import Written, check_writer, write
from passes.infer_shapes import InferShapes

if TYPE_CHECKING:
    from onnxq.running.samples import Data

Progress = Callable[[str], None]


@dataclass(kw_only=True, repr=False)
class Conversion(MadeFiles, Reported):
    """A converted model: its files, the traces of passes, and the proofs."""

    backend: Backend
    source: Model
    """The canonical form of the source."""
    subject: Subject
    """The model to deploy, as lint looks at it."""
    variant: str | None = None
    """The chosen way to deploy; None: the backend's own."""
    range_sources: dict[str, str] = field(default_factory=dict)
    """Where each range comes from, if the target's own quantizers replaced those of the source."""
    change: Change | None = None
    """The lossy change that the target needs; None: there is none."""
    cost: Report | None = None
    """The difference of the outputs caused by that change, if it was measured."""
    stale: list[Path] = field(default_factory=list)
    """Files of an earlier conversion that `save` found in the folder and left there."""

    def _what(self) -> str:
        variant = f", {self.variant}" if self.variant else ""
        return f"{self.stem} for {self.backend.name}{variant}"

    @takes(folder=PATH)
    def save(self, folder: str | Path) -> list[Path]:
        """Write all files into `folder`, or none, and look for those of an earlier conversion."""
        written = super().save(folder)
        self.stale = stale_files(Path(folder), self.stem, self.backend, written)
        return written

    def _origins(self) -> Iterator[Origin | None]:
        yield self.source.origin
        yield from super()._origins()

    @functools.cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Lint findings for the model to deploy, looked for when they are first asked for."""
        return findings(self.subject)

    @property
    def model(self) -> Model:
        """The model to deploy."""
        content = self.artifacts[0].content
        assert isinstance(content, Model)
        return content

    @property
    def report(self) -> Report | None:
        """The comparison of the model to deploy; None if it was not verified."""
        return self.proofs[0].report if self.proofs else None

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return super().to_json() | {
            "backend": self.backend.name,
            "variant": self.variant,
            "stale": [str(p) for p in self.stale],
            "range_sources": self.range_sources,
            "cost": None if self.cost is None else [o.to_json() for o in self.cost.outputs],
            "findings": [f.to_json() for f in self.findings],
        }


@takes(
    source=(Model, *PATH),
    backend=(str, Backend),
    variant=(str, None),
    encodings=(QParamTable, *PATH, Iterable),
    allow_missing=FLAG,
    strict=FLAG,
    weights=(str, None),
    allow_requantize=FLAG,
    min_sqnr=(*NUMBER, None),
    verify=FLAG,
    stem=(str, None),
    progress=Callable,
    observers=Iterable,
    count=INTEGER,
    seed=INTEGER,
    data=(*PATH, Iterable, None),
)
def convert(
    source: Model | str | Path,
    backend: str | Backend,
    *,
    variant: str | None = None,
    data: Data | None = None,
    encodings: Encodings | Iterable[Encodings] = (),
    allow_missing: bool = False,
    strict: bool = False,
    weights: Weights | None = None,
    allow_requantize: bool = False,
    min_sqnr: float | None = None,
    verify: bool = True,
    stem: str | None = None,
    progress: Progress = lambda _: None,
    observers: tuple[Observer, ...] = (),
    count: int = 4,
    seed: int = 0,
) -> Conversion:
    """Convert a quantized model for `backend`; nothing is written until `.save(folder)`.

    `variant` chooses another way to deploy than the backend's own (see `onnxq backends NAME`).
    `encodings` are side files (or tables) with the quantization of a float model: what they say
    must match it, unless `allow_missing`; tensors that they leave out stay float, with a note, or
    are an error with `strict`. `weights="max"` quantizes weights that are not in them.
    `allow_requantize` moves unsupported quantizers to the nearest grid that the target supports, or
    replaces all of them by the target's own (see `onnxq.workflows.recast`; `data` then gives ranges
    that the source lacks). The cost is measured, and fails the proof if it is too large: see
    `onnxq.proof.prove`. `min_sqnr` sets that limit: the least ratio of signal to difference, in dB.
    """
    backend = chosen_backend(backend, variant)
    check_writer(backend)
    if min_sqnr is not None and not math.isfinite(min_sqnr):
        raise OptionError(
            f"{min_sqnr} is no ratio of signal to difference", fix="give a number of dB, such as 20"
        )
    if isinstance(data, Iterator):
        data = list(data)  # every proof needs all of it
    if not isinstance(source, Model):
        progress(f"reading {source}")
        path = Path(source)
        stem = stem or path.stem
        source = load(path)
    found = read(
        source,
        *observers,
        encodings=encodings,
        backend=backend,
        allow_missing=allow_missing,
        strict=strict,
        weights=weights,
        progress=progress,
    )
    progress(f"running {len(backend.pipeline)} passes")
    fitted, written, told = _made(found.model, backend, observers, allow_requantize, data, progress)
    subject = Subject(backend, written.model, fitted.model, found.model)
    conversion = Conversion(
        backend=backend,
        stem=stem or "model",
        source=found.model,
        table=subject.collected.qparams,
        traces=(*found.traces, *fitted.traces, *written.traces),
        artifacts=written.artifacts,
        notes=[*found.notes, *written.notes, *told.notes],
        range_sources=told.sources,
        subject=subject,
        variant=variant,
        change=fitted.change,
    )
    proof_notes: list[str] = []
    if verify:
        with written_apart(written.artifacts) as files:
            proving = functools.partial(
                prove,
                backend,
                found.model,
                files,
                conversion.table,
                min_sqnr=min_sqnr,
                data=data,
                count=count,
                seed=seed,
                progress=progress,
            )
            proven = proving(change=fitted.change)
            if fitted.widened is not None and any(_moved(p.report) for p in proven.proofs):
                progress("proving again, with the codes that the target adds to ranges")
                again = proving(change=fitted.widened)
                if again.cost is not None and _moved(again.cost):
                    conversion.change, proven = fitted.widened, again
        conversion.proofs, conversion.cost = proven.proofs, proven.cost
        proof_notes = proven.notes
    if conversion.change is not None:
        conversion.notes += conversion.change.notes()
    conversion.notes += proof_notes
    return conversion


def _moved(report: Report) -> bool:
    """Whether any value of an output differs by more than the rounding of floats."""
    return any(output.moved or output.nonfinite for output in report.outputs)


@dataclass(frozen=True)
class _Told:
    """What a recast model has to tell."""

    sources: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def _made(
    source: Model,
    backend: Backend,
    observers: tuple[Observer, ...],
    allow_requantize: bool,
    data: Data | None,
    progress: Progress,
) -> tuple[Fitted, Written, _Told]:
    """The model that fits the backend, and its files; in float32 if it has no float16."""
    others = (backend, observers, allow_requantize, data, progress)
    try:
        return _made_as_typed(source, *others)
    except (BackendError, PassError, SaveError):
        wide = source.clone()
        if not allow_requantize or not in_single_precision(wide):
            raise
        progress("computing in float32")
        Pipeline(InferShapes()).run(wide, in_place=True)  # types too
        without_idle_casts(wide)
        fitted, written, told = _made_as_typed(wide, *others)
    trace = Trace("single-precision")
    trace.rewrote(
        "the model",
        f"float16 is computed in float32: it cannot be written for {backend.name} otherwise",
    )
    further = fitted.change.traces if fitted.change is not None else ()
    change = Change(source, fitted.model, (trace, *further))
    return replace(fitted, change=change, widened=None), written, told


def _made_as_typed(
    source: Model,
    backend: Backend,
    observers: tuple[Observer, ...],
    allow_requantize: bool,
    data: Data | None,
    progress: Progress,
) -> tuple[Fitted, Written, _Told]:
    """The model that fits the backend, and its files: on the grids of the source, or recast."""
    fits = False
    try:
        fitted = fit(source, backend, *observers, allow_requantize=allow_requantize)
        fits = True
        return fitted, write(fitted.model, backend), _Told()
    except (BackendError, PassError, SaveError) as error:
        if not allow_requantize:
            raise
        refused: OnnxqError = error
    constants = True
    while True:
        try:
            made = recast(
                source,
                backend,
                *observers,
                why=refused.what,
                data=data,
                constants=constants,
                progress=progress,
            )
        except NothingToPlace:
            if fits:  # the grids are those of the target: something else cannot be written
                raise refused from None
            raise
        try:
            written = write(made.fitted.model, backend)
        except OnnxqError as error:
            if made.constants:
                constants = False  # some side files have no place for them
                continue
            if not made.notes and _first_line(error) == _first_line(refused):
                raise refused from None  # nothing changed, and it has the names of the source
            raise missing_ranges(error, made) from refused
        return made.fitted, written, _Told(made.sources, made.dropped + made.notes)


def _first_line(error: OnnxqError) -> str:
    return error.what.partition("\n")[0]
