"""Applies the quantization in side files to a float model.

    float model + side files -> table, checked against the graph -> canonical model

The format of a file is recognised by its content. Several files make one table; no tensor may be in
two of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from onnxq.analysis.float_graph import FloatGraph
from onnxq.analysis.tensor_roles import TensorParts
from onnxq.backend import Backend
from onnxq.discovery import Broken
from onnxq.errors import LoadError, OptionError
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.argument_types import PATH, check
from onnxq.pass_ import Pass
from onnxq.pipeline import Pipeline
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from onnxq.side_files.side_file import Content, SideFile, formats
from onnxq.storage.model_files import read_bytes
from onnxq.workflows.encoding_coverage import Coverage, examine
from passes.apply_qparams import ApplyQParams
from passes.quantize_weights import QuantizeWeights

Encodings = str | Path | QParamTable
Weights = Literal["max"]


@dataclass
class Given:
    """The content of the side files of a model."""

    table: QParamTable
    formats: list[SideFile] = field(default_factory=list)
    stay_float: set[str] = field(default_factory=set)

    @property
    def holds_weights(self) -> bool:
        """Whether weights could have been given."""
        return not self.formats or any(f.weights for f in self.formats)


def detect(data: bytes, name: str) -> SideFile:
    """The format of a file's content; `name` is only for messages."""
    try:
        return _detected(data, name)
    finally:
        strict_json.forget()


def _detected(data: bytes, name: str) -> SideFile:
    known = [f for f in formats().values() if not isinstance(f, Broken)]
    found = [f for f in known if f.accepts(data)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f.name for f in found)
        raise LoadError(
            f"{name}: several formats recognise this content: {names}",
            fix="uninstall one of the packages that provide them",
        )
    damage = _damage(data, name, known)
    if damage is not None:
        raise damage
    looks = "".join(f"\n    {f.name}: {f.detection}" for f in known if f.detection)
    raise LoadError(
        f"{name}: not a side file in a known format",
        fix=f"'onnxq formats' lists those that are:{looks}",
    )


def _damage(data: bytes, name: str, known: list[SideFile]) -> LoadError | None:
    """The error for a side file that is truncated or has an unsupported version."""
    whole = "give the complete file, as its tool wrote it"
    if not data.strip():
        return LoadError(f"{name}: the file is empty", fix=whole)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    why = strict_json.damage(text)
    if why:
        return LoadError(f"{name}: {why}", fix=whole)
    document = strict_json.peek(text)
    if not any(key.endswith("encodings") for key in document):
        return None
    versions = sorted({version for f in known for version in f.versions})
    if "version" not in document or document["version"] in versions:
        return None
    return LoadError(
        f"{name}: version {document['version']} is not supported (supported: "
        f"{', '.join(versions)})",
        fix="export the encodings in a supported version",
    )


def read_content(path: Path) -> tuple[SideFile, Content]:
    """A side file's format and content."""
    try:
        data = read_bytes(path, strict_json.LARGEST)
    except LoadError as error:
        raise LoadError(f"{path}: {error.what}", fix=error.fix) from error
    found = detect(data, str(path))
    return found, found.decode(data)


def read_all(sources: Iterable[Encodings], model: Model) -> Given:
    """One table from side files (or tables), with the roles of their groups."""
    given = Given(QParamTable())
    origin: dict[str, str] = {}
    for source in sources:
        check("convert", "encodings", source, (QParamTable, *PATH))
        if isinstance(source, QParamTable):
            rows, name = source, "the table"
        else:
            name = str(source)
            side_file, content = read_content(Path(source))
            try:
                rows = side_file.read_table(content, model)
                given.stay_float |= side_file.float_tensors(content)
            except LoadError as error:
                raise LoadError(f"{name}: {error.what}", fix=error.fix) from error
            given.formats.append(side_file)
        for tensor in dict.fromkeys(row.tensor for row in (*rows, *rows.logarithmic)):
            if tensor in origin:
                raise LoadError(
                    f"tensor '{tensor}' is in both {origin[tensor]} and {name}",
                    fix="remove it from one of them",
                )
            origin[tensor] = name
        given.table.extend(rows)
        given.table.logarithmic += rows.logarithmic
    return given


def with_encodings(
    model: Model,
    sources: Encodings | Iterable[Encodings],
    *,
    backend: Backend | None = None,
    allow_missing: bool = False,
    strict: bool = False,
    weights: Weights | None = None,
) -> tuple[Model, list[str]]:
    """A canonical copy of `model`, quantized by its side files, and notes on the gaps they leave.

    A file that contradicts the graph is refused, unless `allow_missing`: then what contradicts it
    is left out. Tensors that a file leaves out stay float, with a note; with `strict` they are an
    error. With `weights="max"`, weights without a range get one from their values
    ('quantize-weights').
    """
    if weights not in (None, "max"):
        raise OptionError(f"'{weights}' is not a way to quantize weights", fix="use 'max'")
    if strict and allow_missing:
        raise OptionError(
            "strict refuses encodings that leave a tensor out, and allow-missing accepts them",
            fix="give one of --strict and --allow-missing",
        )
    if isinstance(sources, str | Path | QParamTable):
        sources = [sources]
    given = read_all(sources, model)
    graph = FloatGraph(model)
    present = {graph.name(tensor.tensor) for tensor in graph.quantized}
    named = dict.fromkeys(row.tensor for row in (*given.table, *given.table.logarithmic))
    twice = [name for name in named if name in present]
    if twice:
        raise _quantized_already(twice)
    only_in_model = present - set(named)
    # A target needs its weights quantized; without one, a format without weights is complete.
    want_weights = weights is None and (given.holds_weights or backend is not None)
    found = examine(
        given.table,
        model,
        backend=backend,
        stay_float=frozenset(given.stay_float | only_in_model),
        want_weights=want_weights,
    )
    notes = [f"encodings read as {f.name}" for f in given.formats]
    if not allow_missing and (found.faulty or (strict and not found.complete)):
        raise _refused(found, given, strict)
    notes += found.lines()
    if found.weights:
        notes.append(f"weights without a range stay float; {_weights_from(given)}")
    notes += [f"'{name}' stays float, as its file says" for name in sorted(given.stay_float)]
    twin = model.clone()
    parts = TensorParts(model)
    twin.qparams = QParamTable(
        [
            row.with_(role=parts.role(row.tensor, row.qtype))
            for row in given.table
            if row.tensor not in found.unusable
        ],
        [row for row in given.table.logarithmic if row.tensor not in found.unusable],
    )
    steps: list[Pass] = [ApplyQParams()]
    if weights is not None:
        steps.append(QuantizeWeights())
    result = Pipeline(*steps).run(twin, in_place=True)
    made = [r for trace in result.traces for r in trace.rewrites if trace.name != "apply-qparams"]
    if made:
        notes.append(f"{len(made)} weights quantized from their own values: absmax per channel")
    result.model.qparams = QParamTable(result.model.qparams.of(Role.BIAS))
    return result.model, notes


def _quantized_already(names: Iterable[str]) -> LoadError:
    """The error for tensors that two sources quantize: neither may silently win."""
    shown = ", ".join(f"'{name}'" for name in names)
    return LoadError(
        f"the model already has quantizers on {shown}, and the encodings specify them too",
        fix="give the float model, or remove the quantizers first: "
        "onnxq run MODEL -p remove-fake-quant -o FLOAT.onnx",
    )


def _refused(found: Coverage, given: Given, strict: bool) -> LoadError:
    if found.faulty:
        what = "the encodings do not match the model"
        fix = "correct the file, or continue without these tensors with --allow-missing"
    else:
        what = "the encodings leave tensors out"
        fix = "complete the file, or keep these tensors float: convert without --strict"
    if found.weights and strict:
        fix = f"{fix}; {_weights_from(given)}"
    lines = "\n    ".join(found.lines())
    return LoadError(f"{what}:\n    {lines}", fix=fix)


def _weights_from(given: Given) -> str:
    """The ways to quantize weights that are in no file."""
    names = ", ".join(dict.fromkeys(f.name for f in given.formats))
    why = "" if given.holds_weights else f"{names} contains no weights: "
    return (
        f"{why}add --weights max (int8, absmax / 127 per channel, as TensorRT computes them) or a "
        "second --encodings file with the weights to quantize them"
    )


__all__ = ["Encodings", "Given", "Weights", "detect", "read_all", "read_content", "with_encodings"]
