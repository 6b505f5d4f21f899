"""From any quantized model to the files a backend wants, with proof.

    read -> canonical source ---------------------------------------------.
              |                                                           |
              '-> backend's pipeline -> legal canonical -> files -> read back -> compared

The proof runs the files as written, read back from disk, against the canonical form of what came
in. A side file is proven by reading it back and applying it to the clean model beside it. Where a
pass had to change what the model computes, the files are compared with what it made, and the
change is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.backend import Backend, OnnxFile, TableFile, chosen_backend
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.dialects.function_inlining import left_in, quantizing_functions
from onnxq.dialects.quantizing_operators import check_readable
from onnxq.disk.data_file import Origin
from onnxq.errors import BackendError, OptionError, SaveError, listed
from onnxq.graph import Model, load
from onnxq.lint.findings import findings
from onnxq.lint.rule import Finding, Subject
from onnxq.parsing.argument_types import FLAG, INTEGER, PATH, takes
from onnxq.pass_ import Trace
from onnxq.pipeline import Observer, Pipeline
from onnxq.proof.prove import prove
from onnxq.proof.verify import Report
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from onnxq.reading import canonical, readable_form
from onnxq.side_files.native_format import NativeFile, NativeFormat
from onnxq.side_files.side_file import Content, EmptySideFile
from onnxq.workflows.artifacts import Artifact, MadeFiles
from onnxq.workflows.encodings import Encodings, Weights, with_encodings
from onnxq.workflows.fit_to_backend import Change, legal_form
from onnxq.workflows.stale_files import stale_files
from passes.collect_qparams import CollectQParams

if TYPE_CHECKING:
    from onnxq.running.samples import Data

Progress = Callable[[str], None]


@dataclass(kw_only=True)
class Conversion(MadeFiles):
    """A converted model: what was made, how, and whether it is proven."""

    backend: Backend
    source: Model
    """The canonical form of what came in."""
    findings: tuple[Finding, ...] = ()
    """What lint says about the model to deploy."""
    variant: str | None = None
    """The way to deploy that was chosen; None: the backend's own."""
    change: Change | None = None
    """What had to be changed for the target; None: nothing."""
    cost: Report | None = None
    """How far that change takes the outputs from those of the source, where it was measured."""
    stale: list[Path] = field(default_factory=list)
    """What `save` found of an earlier conversion in the folder, and left there."""

    @takes(folder=PATH)
    def save(self, folder: str | Path) -> list[Path]:
        """Write all files into `folder`, or none, and look for those of an earlier conversion."""
        written = super().save(folder)
        self.stale = stale_files(Path(folder), self.stem, self.backend, written)
        return written

    def _origins(self) -> Iterator[Origin | None]:
        yield self.source.origin
        yield from super()._origins()

    @property
    def model(self) -> Model:
        """The model to deploy."""
        content = self.artifacts[0].content
        assert isinstance(content, Model)
        return content

    @property
    def report(self) -> Report | None:
        """The comparison of the model to deploy; None where it was not verified."""
        return self.proofs[0].report if self.proofs else None

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "backend": self.backend.name,
            "variant": self.variant,
            "files": [str(p) for p in self.files],
            "stale": [str(p) for p in self.stale],
            "proven": self.proven,
            "proofs": [p.to_json() for p in self.proofs],
            "cost": None if self.cost is None else [o.to_json() for o in self.cost.outputs],
            "notes": self.notes,
            "findings": [f.to_json() for f in self.findings],
            "table": self.table.to_json(),
            "traces": [t.to_json() for t in self.traces],
        }


@takes(
    source=(Model, *PATH),
    backend=(str, Backend),
    variant=(str, None),
    encodings=(QParamTable, *PATH, Iterable),
    allow_missing=FLAG,
    weights=(str, None),
    allow_requantize=FLAG,
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
    weights: Weights | None = None,
    allow_requantize: bool = False,
    verify: bool = True,
    stem: str | None = None,
    progress: Progress = lambda _: None,
    observers: tuple[Observer, ...] = (),
    count: int = 4,
    seed: int = 0,
) -> Conversion:
    """Convert a quantized model for `backend`; nothing is written until `.save(folder)`.

    `variant` chooses another way to deploy than the backend's own: `onnxq backends` lists them.
    `encodings` are side files (or tables) with the quantization of a float model: they must fit
    it, unless `allow_missing`. `weights="max"` quantizes weights they leave out.
    `allow_requantize` moves quantizers that the target does not have onto the nearest grid that it
    has; what that costs is measured, and too much of it fails (see `onnxq.proof.prove`).
    """
    backend = chosen_backend(backend, variant)
    if not backend.writes:
        raise BackendError(
            f"onnxq cannot write files for {backend.name} yet: its writer does not exist",
            fix="train for it and keep the canonical ONNX, or convert for a backend that "
            "'onnxq backends' shows with files",
        )
    if isinstance(data, Iterator):
        data = list(data)  # every proof needs all of it
    if not isinstance(source, Model):
        progress(f"reading {source}")
        path = Path(source)
        stem = stem or path.stem
        source = load(path)
    source = readable_form(source)
    check_readable(source)
    notes = [*source.upgrades]
    beside = [encodings] if isinstance(encodings, str | Path | QParamTable) else list(encodings)
    if beside:
        progress("reading encodings")
        source, told = with_encodings(
            canonical(source)[0],
            beside,
            backend=backend,
            allow_missing=allow_missing,
            weights=weights,
        )
        notes += told
    elif weights is not None:
        raise OptionError(
            "weights are quantized where encodings leave them out, and there are none",
            fix="give encodings, or run the pass 'quantize-weights'",
        )
    before, traces = canonical(source)
    if not before.nodes(*QUANTIZERS):
        raise unquantized(before, traces)
    notes += unread(before, traces)
    progress(f"running {len(backend.pipeline)} passes")
    legal = legal_form(source, backend, *observers, allow_requantize=allow_requantize)
    collected = Pipeline(CollectQParams()).run(legal.model)
    table = collected.model.qparams
    artifacts: list[Artifact] = []
    clean: dict[str, Model] = {}
    left_out: dict[str, list[str]] = {}
    native: dict[NativeFormat, Mapping[str, Content]] = {}
    done = list(legal.traces)
    for output in backend.outputs:
        if isinstance(output, OnnxFile):
            made = output.pipeline.run(legal.model)
            done += made.traces
            if output.clean:
                check_clean(made.model, output.suffix)
            clean[output.suffix] = made.model
            artifacts.append(Artifact(output.suffix, output.summary, made.model))
        elif isinstance(output, NativeFile):
            if output.format not in native:
                native[output.format] = output.format.write(legal.model)
            part = native[output.format][output.part]
            artifacts.append(Artifact(output.suffix, output.summary, part))
        else:
            model = clean[output.beside]
            try:
                if output.legacy:
                    check_clean(model, output.beside)
                content = output.format.write_some(model.qparams, model)
            except (SaveError, BackendError) as error:
                if not output.legacy and not (
                    isinstance(error, EmptySideFile) and output.format.magnitudes
                ):
                    raise
                left_out.setdefault(error.what, []).append(output.suffix.lstrip("_"))
                continue
            artifacts.append(Artifact(output.suffix, output.summary, content))
    artifacts = _with_use(artifacts, backend)
    notes += [f"{', '.join(names)} not written: {why}" for why, names in left_out.items()]
    conversion = Conversion(
        backend=backend,
        stem=stem or "model",
        source=before,
        table=table,
        traces=tuple(done),
        artifacts=tuple(artifacts),
        notes=[*notes],
        variant=variant,
        change=legal.change,
    )
    if legal.change is not None:
        conversion.notes += legal.change.notes()
    progress("looking for what the target will not do")
    conversion.findings = findings(Subject(backend, conversion.model, legal.model, before))
    if verify:
        conversion.proofs = prove(conversion, data, count, seed, progress)
    return conversion


def _with_use(artifacts: list[Artifact], backend: Backend) -> list[Artifact]:
    """The files without models that stood only beside files that were not written."""
    made = {artifact.suffix for artifact in artifacts}
    tables = [output for output in backend.outputs if isinstance(output, TableFile)]
    used = {table.beside for table in tables if table.suffix in made}
    unused = {table.beside for table in tables} - used
    return [artifact for artifact in artifacts if artifact.suffix not in unused]


def unread(model: Model, traces: Iterable[Trace]) -> list[str]:
    """Notes on quantization that no reader could read, which stays in what is written."""
    left = [f"{s.where}: {s.reason}" for t in traces for s in t.skips]
    left += [
        f"function '{f.domain}::{f.name}': it quantizes and cannot be inlined: its opset is not "
        "that of the model"
        for f in quantizing_functions(model)
    ]
    return [f"left as it is: {what}" for what in dict.fromkeys(left)]


def check_clean(model: Model, suffix: str) -> None:
    """Raise where a float model, whose quantization stands beside it, still quantizes."""
    left = list(left_in(model))
    if left:
        raise BackendError(
            f"'{suffix.lstrip('_')}' would be a float model, but quantization that could not be "
            f"read is still in it:{listed(left)}",
            fix="'onnxq inspect' says why each was left; export the model with constant scales "
            "and zero points, or take these nodes out",
        )


def unquantized(model: Model, traces: tuple[Trace, ...]) -> BackendError:
    """The error for a model without quantizers, with what to do about it."""
    skips = [s for t in traces for s in t.skips]
    if model.qparams.of(Role.ACTIVATION, Role.WEIGHT) or model.qparams.logarithmic:
        return BackendError(
            "the model carries a quantization table, but no quantizers",
            fix="put them in first: onnxq run MODEL -p apply-qparams -o QUANTIZED.onnx",
        )
    why = f" ({skips[0].where}: {skips[0].reason})" if skips else ""
    return BackendError(
        f"the model has no quantizers that onnxq can read{why}",
        fix="give a quantized model, or the ranges of this one with --encodings FILE; "
        "'onnxq inspect' lists what was found",
    )


__all__ = [
    *("READERS", "Conversion", "canonical", "check_clean", "constants_frozen", "convert"),
    *("readable_form", "unquantized", "unread"),
]
