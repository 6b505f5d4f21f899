"""Makes the files of a backend from the legal canonical model, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.dialects.function_inlining import left_in
from onnxq.errors import BackendError, SaveError, listed
from onnxq.graph import Model
from onnxq.pass_ import Trace
from onnxq.side_files.native_format import NativeFile, NativeFormat
from onnxq.side_files.side_file import Content, EmptySideFile
from onnxq.workflows.artifacts import Artifact


@dataclass(frozen=True)
class Written:
    """The files of one model for a backend."""

    model: Model
    """The model to deploy: the first of the files."""
    artifacts: tuple[Artifact, ...]
    traces: tuple[Trace, ...]
    notes: list[str]


def check_writer(backend: Backend) -> None:
    """Refuse a backend that can only be trained for."""
    if not backend.writes:
        raise BackendError(
            f"onnxq cannot write files for {backend.name} yet: its writer does not exist",
            fix="train for it and keep the canonical ONNX, or convert for a backend that "
            "writes files ('onnxq backends NAME' lists them)",
        )


def write(legal: Model, backend: Backend) -> Written:
    """Make all files of `backend`; legacy files that cannot contain the model are left out."""
    check_writer(backend)
    artifacts: list[Artifact] = []
    traces: list[Trace] = []
    models: dict[str, Model] = {}
    left_out: dict[str, list[str]] = {}
    native: dict[NativeFormat, Mapping[str, Content]] = {}
    for output in backend.outputs:
        content: Model | Content
        if isinstance(output, OnnxFile):
            made = output.pipeline.run(legal)
            traces += made.traces
            if output.clean:
                check_clean(made.model, output.suffix)
            content = models[output.suffix] = made.model
        elif isinstance(output, NativeFile):
            if output.format not in native:
                native[output.format] = output.format.write(legal)
            content = native[output.format][output.part]
        else:
            try:
                model = models[output.beside]
                if output.legacy:
                    check_clean(model, output.beside)
                content = output.format.write_some(model.qparams, model)
            except (SaveError, BackendError) as error:
                empty = isinstance(error, EmptySideFile) and output.format.magnitudes
                if not output.legacy and not empty:
                    raise
                left_out.setdefault(error.what, []).append(output.suffix.lstrip("_"))
                continue
        artifacts.append(Artifact(output.suffix, output.summary, content))
    notes = [f"{', '.join(names)} not written: {why}" for why, names in left_out.items()]
    first = models[backend.outputs[0].suffix]
    return Written(first, _with_use(artifacts, backend), tuple(traces), notes)


def _with_use(artifacts: list[Artifact], backend: Backend) -> tuple[Artifact, ...]:
    """The files without models that belong only to files that were not written."""
    made = {artifact.suffix for artifact in artifacts}
    tables = [output for output in backend.outputs if isinstance(output, TableFile)]
    used = {table.beside for table in tables if table.suffix in made}
    unused = {table.beside for table in tables} - used
    return tuple(artifact for artifact in artifacts if artifact.suffix not in unused)


def check_clean(model: Model, suffix: str) -> None:
    """Raise if a float model, whose quantization is in a side file, still quantizes."""
    left = list(left_in(model))
    if left:
        raise BackendError(
            f"'{suffix.lstrip('_')}' would be a float model, but quantization that could not be "
            f"read is still in it:{listed(left)}",
            fix="'onnxq inspect' says why each was left; export the model with constant scales "
            "and zero points, or take these nodes out",
        )
