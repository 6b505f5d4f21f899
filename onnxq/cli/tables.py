"""Tables and messages for people; machines get `--json`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from onnxq.backend import Backend
from onnxq.cli import lint_tables
from onnxq.cli.screen import new_table as _table
from onnxq.cli.screen import shown, shown_lines
from onnxq.discovery import Broken
from onnxq.pass_ import Pass, Trace
from onnxq.proof.difference import TensorDiff
from onnxq.proof.prove import COST, Proof
from onnxq.proof.verify import Report
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams
from onnxq.side_files.side_file import SideFile
from onnxq.workflows.convert import Conversion
from onnxq.workflows.side_export import SideExport
from onnxq.workflows.summary import Summary

OK, FAILED = Text("ok", "green"), Text("FAILED", "bold red")
_NUMBERS = ("max difference", "mean", "moved", "values")
"""The columns of a difference before its verdict."""
T = TypeVar("T")


def number(value: float) -> str:
    """A number short enough for a table."""
    return "0" if value == 0 else f"{value:.3g}"


def diff_cells(diff: TensorDiff) -> list[RenderableType]:
    """The cells of one difference, as `_NUMBERS` names them, and the verdict."""
    unit = {"steps": "steps", "relative": "relative", "exact": "abs"}[diff.unit]
    if diff.unit == "steps" and diff.max == 1:
        unit = "step"
    return [
        f"{number(diff.max)} {unit}",
        number(diff.mean),
        f"{100 * diff.moved:.3g} %",
        f"{diff.count:,}",
        OK if diff.passed and diff.finite else FAILED,
    ]


def proofs(found: Iterable[Proof], title: str = "Proof") -> RenderableType:
    """The comparisons, output by output."""
    table = _table(title, "compared", "output", *_NUMBERS, "", right=_NUMBERS)
    notes: list[str] = []
    for proof in found:
        for diff in proof.report.outputs:
            # The session that ran instead of a rejected one was compared already.
            cells = ["not run", "", "", "", FAILED] if proof.refused else diff_cells(diff)
            table.add_row(proof.what, shown(diff.name), *cells)
        if proof.refused:
            notes.append(f"{proof.what}: {proof.refused}")
        notes += [n for n in proof.report.notes if n not in notes]
    return Group(table, *_notes(notes))


def _outputs(title: str, found: Report, judged: bool = True) -> RenderableType:
    """The differences of the outputs, with their verdicts if they are `judged`."""
    verdict = ("",) if judged else ()
    numbers = ("SQNR", *_NUMBERS)
    table = _table(title, "output", *numbers, *verdict, right=numbers)
    for diff in found.outputs:
        ratio = f"{diff.sqnr:.1f} dB" if math.isfinite(diff.sqnr) else "-"
        table.add_row(shown(diff.name), ratio, *diff_cells(diff)[: None if judged else -1])
    return table


def _notes(notes: Iterable[str]) -> list[RenderableType]:
    return [shown(f"note: {note}", "yellow") for note in notes]


def report(found: Report, per_layer: bool) -> RenderableType:
    """A comparison of two models."""
    parts: list[RenderableType] = []
    if per_layer:
        layers = _table("Layers", "tensor", *_NUMBERS, "", "producer", right=_NUMBERS)
        for diff in found.layers:
            made_by = shown(f"{diff.op} {diff.node}".strip())
            layers.add_row(shown(diff.name), *diff_cells(diff), made_by)
        parts.append(layers)
    parts.append(_outputs("Outputs", found))
    first = found.first_divergence
    if first is not None:
        parts.append(
            shown(f"first divergence: '{first.name}', output of {first.op} '{first.node}'", "red")
        )
    parts += _notes(found.notes)
    verdict = "the models agree" if found.passed else "the models differ"
    parts.append(
        shown(
            f"{verdict} ({found.samples} samples, {found.sessions[0]} vs {found.sessions[1]} "
            "session)",
            "green" if found.passed else "bold red",
        )
    )
    return Group(*parts)


def traces(found: Iterable[Trace], explain: bool) -> RenderableType:
    """The work of each pass; with `explain` also the nodes that it skipped, and why."""
    table = _table("Passes", "pass", "rewrote", "left", "ms", right=("rewrote", "left", "ms"))
    details: list[RenderableType] = []
    notes: list[str] = []
    for trace in found:
        table.add_row(
            trace.name,
            str(len(trace.rewrites)),
            str(len(trace.skips)),
            f"{1e3 * trace.seconds:.1f}",
        )
        reasons = Counter(s.reason for s in trace.skips)
        for reason, times in reasons.items() if explain else ():
            where = [s.where for s in trace.skips if s.reason == reason]
            names = ", ".join(where[:5]) + (f" and {times - 5} more" if times > 5 else "")
            details.append(shown(f"{trace.name} skipped {names}: {reason}"))
        notes += [f"{trace.name}: {note}" for note in trace.notes]
    return Group(table, *details, *_notes(notes))


def conversion(found: Conversion | SideExport, explain: bool) -> RenderableType:
    """The full report of a conversion."""
    files = _table("Files", "file", "content")
    for artifact in found.artifacts:
        files.add_row(shown(f"{found.stem}{artifact.suffix}"), artifact.summary)
    parts = [traces(found.traces, explain)] if explain else []
    parts.append(files)
    if found.proofs:
        parts.append(proofs(proof for proof in found.proofs if proof.what != COST))
    if isinstance(found, Conversion):
        if found.cost is not None:
            judged = next((proof.report for proof in found.proofs if proof.what == COST), None)
            cost = judged or found.cost
            parts.append(_outputs("Cost of the changes", cost, judged is not None))
        if explain and found.change is not None:
            parts += [
                shown(f"{trace.name}: {rewrite}")
                for trace in found.change.traces
                for rewrite in trace.rewrites
            ]
        told = [f for f in found.findings if explain or f.severity != "info"]
        if told:
            title = f"Lint findings for {found.backend.name}"
            parts.append(lint_tables.findings(told, title, None if explain else 3))
        parts += _notes(
            f"{path} does not belong to this conversion, perhaps to an earlier one; remove it, or "
            "write to another folder"
            for path in found.stale
        )
    return Group(*parts, *_notes(found.notes))


def qparams(rows: QParamTable | Iterable[QParams], title: str = "Quantizers") -> RenderableType:
    """The quantization table."""
    numbers = ("range", "scale", "zero point", "axis")
    table = _table(title, "tensor", "role", "type", *numbers, right=numbers)
    for row in rows:
        scale = row.scale.reshape(-1)
        zero = row.zero_point.reshape(-1)
        table.add_row(
            shown(row.tensor),
            str(row.role),
            str(row.qtype),
            f"{row.lo}..{row.hi}",
            number(float(scale[0]))
            if scale.size == 1
            else f"{number(float(scale.min()))}..{number(float(scale.max()))} x{scale.size}",
            str(zero[0]) if zero.min() == zero.max() else f"{zero.min()}..{zero.max()}",
            "" if row.axis is None else str(row.axis),
        )
    return table


def summary(found: Summary) -> RenderableType:
    """The content of a model."""
    head = _table("Model", "", "")
    head.show_header = False
    for key, *values in (
        ("opset", ", ".join(f"{domain} {version}" for domain, version in found.opsets.items())),
        ("IR version", str(found.ir_version)),
        ("producer", found.producer or "-"),
        ("inputs", *(f"{n}  {t}" for n, t in found.inputs)),
        ("outputs", *(f"{n}  {t}" for n, t in found.outputs)),
        ("constants", f"{found.constants:,} ({found.constant_bytes / 1e6:.2f} MB)"),
        ("operators", ", ".join(f"{op} {n}" for op, n in found.ops.items())),
        ("quantization", ", ".join(found.dialects) or "none"),
    ):
        head.add_row(key, shown_lines(values))
    parts: list[RenderableType] = [head]
    if len(found.table):
        parts.append(qparams(found.table))
    if found.layers:
        layers = _table("Layers", "layer", "op", "input", "weight", "output")
        for layer in found.layers:
            marks = [
                shown("quantized", "green") if q else shown("float", "yellow")
                for q in (layer.input, layer.weight, layer.output)
            ]
            layers.add_row(shown(layer.name), shown(layer.op), *marks)
        parts.append(layers)
        whole = sum(layer.quantized for layer in found.layers)
        parts.append(
            shown(f"{whole} of {len(found.layers)} layers have quantized input and weight")
        )
    parts += [shown(f"not read: {s.where}: {s.reason}", "yellow") for s in found.unread]
    return Group(*parts, *_notes(found.notes))


def _working(known: Mapping[str, T | Broken], table: Table) -> Iterator[tuple[str, T]]:
    """The plug-ins that work; the others become rows with their errors."""
    for name, found in known.items():
        if isinstance(found, Broken):
            table.add_row(name, shown(f"broken plug-in: {found.error}", "red"))
        else:
            yield name, found


def pass_list(known: Mapping[str, type[Pass] | Broken]) -> RenderableType:
    """All passes with their options."""
    table = _table("Passes", "pass", "options", "what it does")
    for name, found in _working(known, table):
        options = shown_lines(
            f"{o.name}={o.format(o.default) if not o.required else '...'}  ({o.kind_name})"
            for o in found.options().values()
        )
        table.add_row(name, options, shown(found.summary()))
    return table


def backend_list(known: Mapping[str, Backend | Broken]) -> RenderableType:
    """All backends."""
    table = _table("Backends", "backend", "accepts", "files", "proof")
    for name, found in _working(known, table):
        takes = [
            found.summary,
            f"weights {found.scheme.weight}",
            f"activations {found.scheme.activation}",
            f"biases {found.scheme.bias or 'float'}",
        ]
        files = [f"<stem>{o.suffix}" for o in found.outputs] or ["none: no writer yet"]
        files += [f"--variant {v}: {chosen.summary}" for v, chosen in found.variants.items()]
        proof = [found.proof or "training only", *found.consumers]
        table.add_row(name, *map(shown_lines, (takes, files, proof)))
    return table


def format_list(known: Mapping[str, SideFile | Broken]) -> RenderableType:
    """All side-file formats."""
    table = _table("Formats", "format", "content", "holds", "recognised by")
    for name, found in _working(known, table):
        holds = "weights and activations" if found.weights else "activations"
        detection = found.detection or "not recognised by content"
        table.add_row(name, shown(found.summary), holds, shown(detection))
    return table
