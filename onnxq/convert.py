"""From any quantized model to the files a backend wants, with proof.

    read -> canonical source ---------------------------------------------.
              |                                                           |
              '-> backend's pipeline -> legal canonical -> files -> read back -> compared

The proof runs the files as written, read back from disk, against the canonical form of what came
in. A side file is proven by reading it back and applying it to the clean model beside it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq import files
from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.discovery import find_backend, find_pass
from onnxq.errors import BackendError, OnnxqError
from onnxq.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model, load, save
from onnxq.pass_ import Trace
from onnxq.pipeline import Observer, Pipeline
from onnxq.qparam_table import QParamTable
from onnxq.qparams import Role
from onnxq.runtime import Kind
from onnxq.verify import Report, saturates, verify

if TYPE_CHECKING:
    from onnxq.samples import Data

Progress = Callable[[str], None]

READERS = ("read-qdq",)
"""The passes that bring a dialect to the canonical form."""


@dataclass(frozen=True)
class Artifact:
    """One file of a conversion, before it is written."""

    suffix: str
    summary: str
    content: Model | str

    def write(self, folder: Path, stem: str) -> list[Path]:
        """Write the file; returns what was written."""
        path = folder / f"{stem}{self.suffix}"
        if isinstance(self.content, Model):
            return save(self.content, path)
        return [files.write_text(path, self.content)]


@dataclass(frozen=True)
class Proof:
    """One comparison of what was written with what was read."""

    what: str
    report: Report


@dataclass
class Conversion:
    """A converted model: what was made, how, and whether it is proven."""

    backend: Backend
    stem: str
    source: Model
    """The canonical form of what came in."""
    table: QParamTable
    """Its quantization after the backend's pipeline."""
    traces: tuple[Trace, ...]
    artifacts: tuple[Artifact, ...]
    proofs: tuple[Proof, ...] = ()
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

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

    @property
    def proven(self) -> bool:
        """Whether there is a proof and all of it holds."""
        return bool(self.proofs) and all(p.report.passed for p in self.proofs)

    def save(self, folder: str | Path) -> list[Path]:
        """Write all files into `folder`."""
        self.files = [p for a in self.artifacts for p in a.write(Path(folder), self.stem)]
        return self.files

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "backend": self.backend.name,
            "files": [str(p) for p in self.files],
            "proven": self.proven,
            "proofs": [{"what": p.what, **p.report.to_json()} for p in self.proofs],
            "notes": self.notes,
            "table": self.table.to_json(),
            "traces": [t.to_json() for t in self.traces],
        }


def canonical(model: Model, *observers: Observer) -> tuple[Model, tuple[Trace, ...]]:
    """`model` with every dialect read into FakeQuantize nodes."""
    result = Pipeline(*(find_pass(name)() for name in READERS)).run(model, *observers)
    return result.model, result.traces


def convert(
    source: Model | str | Path,
    backend: str | Backend,
    *,
    data: Data | None = None,
    verify: bool = True,
    stem: str | None = None,
    progress: Progress = lambda _: None,
    observers: tuple[Observer, ...] = (),
    count: int = 4,
    seed: int = 0,
) -> Conversion:
    """Convert a quantized model for `backend`; nothing is written until `.save(folder)`."""
    if isinstance(backend, str):
        backend = find_backend(backend)
    if not backend.writes:
        raise BackendError(
            f"onnxq cannot write files for {backend.name} yet: its writer does not exist",
            fix="train for it and keep the canonical ONNX, or convert for a backend that "
            "'onnxq backends' shows with files",
        )
    if not isinstance(source, Model):
        progress(f"reading {source}")
        path = Path(source)
        stem = stem or path.stem
        source = load(path)
    before, traces = canonical(source)
    if not before.nodes(FAKE_QUANTIZE):
        raise BackendError(
            "the model has no quantizers that onnxq can read",
            fix=_why_unquantized(traces),
        )
    progress(f"running {len(backend.pipeline)} passes")
    legal = backend.pipeline.run(source, *observers)
    _check_scheme(legal.model, backend)
    collected = Pipeline(find_pass("collect-qparams")()).run(legal.model)
    table = collected.model.qparams
    artifacts: list[Artifact] = []
    clean: dict[str, Model] = {}
    done = list(legal.traces)
    for output in backend.outputs:
        if isinstance(output, OnnxFile):
            made = output.pipeline.run(legal.model)
            done += made.traces
            clean[output.suffix] = made.model
            artifacts.append(Artifact(output.suffix, output.summary, made.model))
        else:
            beside = clean[output.beside]
            text = output.format.write(beside.qparams, beside)
            artifacts.append(Artifact(output.suffix, output.summary, text))
    conversion = Conversion(backend, stem or "model", before, table, tuple(done), tuple(artifacts))
    if verify:
        conversion.proofs = _prove(conversion, data, count, seed, progress)
    return conversion


def _why_unquantized(traces: tuple[Trace, ...]) -> str:
    skips = [s for t in traces for s in t.skips]
    if skips:
        return f"{skips[0].where} was left as it is: {skips[0].reason}"
    return "give a model with QuantizeLinear/DequantizeLinear or onnxq::FakeQuantize nodes"


def _check_scheme(model: Model, backend: Backend) -> None:
    """One error for everything that the target would not accept."""
    broken: list[str] = []
    for node in model.nodes(FAKE_QUANTIZE):
        params = params_of(node)
        rules = backend.scheme.violations(params)
        if rules:
            broken.append(f"'{params.tensor}' ({params.role}): {'; '.join(rules)}")
    if broken:
        shown = "\n    ".join(broken[:20])
        more = f"\n    ... and {len(broken) - 20} more" if len(broken) > 20 else ""
        raise BackendError(
            f"{len(broken)} quantizers do not fit {backend.name}:\n    {shown}{more}",
            fix=f"train or quantize with {backend.name}'s scheme: "
            f"weights ({backend.scheme.weight}), activations ({backend.scheme.activation})",
        )


def _prove(
    conversion: Conversion, data: Data | None, count: int, seed: int, progress: Progress
) -> tuple[Proof, ...]:
    """Write everything to a temporary folder, read it back and compare."""
    proofs: list[Proof] = []
    with tempfile.TemporaryDirectory(prefix="onnxq-") as name:
        folder = Path(name)
        written = {}
        for artifact in conversion.artifacts:
            written[artifact.suffix] = artifact.write(folder, "model")[0]
        first = conversion.artifacts[0]
        for kind in conversion.backend.sessions:
            progress(f"proving {first.suffix.lstrip('_')} in onnxruntime ({kind} session)")
            report = verify(
                conversion.source,
                written[first.suffix],
                data,
                sessions=("reference", kind),
                count=count,
                seed=seed,
                **_tolerance(conversion, kind),
            )
            proofs.append(Proof(f"{first.suffix.lstrip('_')} ({kind})", report))
        if "deployed" in conversion.backend.sessions:
            conversion.notes += _saturation(written[first.suffix], data)
        for output in conversion.backend.outputs:
            if not isinstance(output, TableFile):
                continue
            progress(f"proving {output.suffix.lstrip('_')} by reading it back")
            model = load(written[output.beside])
            text = written[output.suffix].read_text(encoding="utf-8")
            read = output.format.read(text, model)
            model.qparams = _restored(model.qparams, read)
            restored = Pipeline(find_pass("apply-qparams")()).run(model).model
            report = verify(
                conversion.source,
                restored,
                data,
                count=count,
                seed=seed,
                **_tolerance(conversion, "reference"),
            )
            proofs.append(Proof(f"{output.suffix.lstrip('_')} (read back)", report))
    return tuple(proofs)


def _tolerance(conversion: Conversion, kind: Kind) -> dict[str, Any]:
    """What may differ: next to nothing in the reference session, rounding in integer kernels.

    An integer kernel rounds sums where the float graph rounds products, so any value may land on a
    neighbouring code, and deep networks carry that on. Four steps, or 10 % where an output has no
    step (more with fewer bits), is rounding; beyond that something is wrong. The same holds for
    float16 models, which onnxruntime rounds here or there depending on what stands around.
    """
    half = any(n.inputs[1].dtype == np.float16 for n in conversion.source.nodes(FAKE_QUANTIZE))
    if kind == "reference" and not half:
        return {}
    bits = min((row.qtype.bits for row in conversion.table.of(Role.ACTIVATION)), default=8)
    return {
        "max_steps": 4.0,
        "max_moved": 1.0,
        "max_relative": min(1.0, 0.1 * 2.0 ** max(0, 8 - bits)),
    }


def _saturation(path: Path, data: Data | None) -> list[str]:
    """A warning where onnxruntime's default session gives other numbers on this CPU."""
    try:
        off = saturates(path, data)
    except OnnxqError as error:
        return [f"onnxruntime's default session does not run the model: {error.what}"]
    if off is None:
        return []
    return [
        f"onnxruntime's default session is off by {off.max:.3g} {off.unit} at '{off.name}' on this "
        "CPU: its 8-bit kernels saturate. Run with session.x64quantprecision=1, or deploy to a CPU "
        "with VNNI"
    ]


def _restored(whole: QParamTable, read: QParamTable) -> QParamTable:
    """The table with its activations as a side file tells them.

    Side files have ranges but no readers: these, and the weights, come from the converted graph.
    """
    found = {row.tensor: row for row in read}
    return QParamTable(
        [
            found[row.tensor].with_(readers=row.readers)
            if row.role is Role.ACTIVATION and row.tensor in found
            else row
            for row in whole
        ]
    )


__all__ = ["READERS", "Artifact", "Conversion", "Proof", "canonical", "convert"]
