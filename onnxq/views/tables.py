"""Tables and messages for people; machines get `--json`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from onnxq.views import lint_tables
from onnxq.views.alike import first_names, grouped, merged
from onnxq.views.screen import new_table as _table
from onnxq.views.screen import shown, shown_lines

if TYPE_CHECKING:
    from onnxq.pass_ import Trace
    from onnxq.proof.difference import TensorDiff
    from onnxq.proof.kernel_difference import KernelDiff
    from onnxq.proof.prove import Proof
    from onnxq.proof.verify import Report
    from onnxq.quant.qparam_table import QParamTable
    from onnxq.workflows.artifacts import MadeFiles
    from onnxq.workflows.convert import Conversion
    from onnxq.workflows.summary import Summary

OK, DRIFT, FAILED = Text("ok", "green"), Text("drift", "yellow"), Text("FAILED", "bold red")
_NUMBERS = ("max difference", "mean", "moved", "values")
"""The columns of a difference before its verdict."""


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


def proofs(proven: Iterable[Proof], title: str = "Proof") -> RenderableType:
    """The comparisons, output by output."""
    table = _table(title, "compared", "output", *_NUMBERS, "", right=_NUMBERS)
    notes: list[str] = []
    for proof in proven:
        found = proof.report
        for diff in found.outputs:
            # The session that ran instead of a rejected one was compared already.
            cells = ["not run", "", "", "", FAILED] if proof.refused else diff_cells(diff)
            if found.drifts:
                cells[-1] = DRIFT
            table.add_row(proof.what, shown(diff.name), *cells)
        if found.furthest is not None:
            table.add_row(proof.what, *_kernel_cells(found, found.furthest))
        if proof.refused:
            notes.append(f"{proof.what}: {proof.refused}")
        notes += [n for n in proof.report.notes if n not in notes]
    return Group(table, *_notes(notes))


def _kernel_cells(found: Report, furthest: KernelDiff) -> list[RenderableType]:
    """The cells of all kernels together: the furthest of them."""
    unit = {"steps": "steps", "relative": "relative", "share": "moved"}[furthest.unit]
    if furthest.unit == "steps" and furthest.deviation == 1:
        unit = "step"
    return [
        f"{len(found.kernels)} kernels, each by itself",
        f"{number(furthest.deviation)} {unit}",
        "",
        f"{100 * max(kernel.moved for kernel in found.kernels):.3g} %",
        f"{sum(kernel.count for kernel in found.kernels):,}",
        OK if found.wrong is None else FAILED,
    ]


def _outputs(title: str, found: Report, judged: bool = True) -> RenderableType:
    """The differences of the outputs, with their verdicts if they are `judged`."""
    verdict = ("",) if judged else ()
    numbers = ("SQNR", *_NUMBERS)
    table = _table(title, "output", *numbers, *verdict, right=numbers)
    for diff in found.outputs:
        ratio = f"{diff.sqnr:.1f} dB" if math.isfinite(diff.sqnr) else "-"
        ratio = "exact" if diff.sqnr == math.inf and diff.max == 0 else ratio
        table.add_row(shown(diff.name), ratio, *diff_cells(diff)[: None if judged else -1])
    return table


def short_report(found: Report, most: int) -> RenderableType:
    """The verdict of a comparison and its worst outputs."""
    worst = sorted(found.outputs, key=lambda o: -o.severity)[:most]
    return report(replace(found, outputs=tuple(worst)), per_layer=False)


def short_conversion(found: MadeFiles, most: int) -> RenderableType:
    """Files, proofs and notes of a conversion, without findings that must be looked for."""
    parts = [shown(found.headline, "bold"), *made_files(found, explain=False)]
    return Group(*parts, *_notes(found.notes)[:most])


def _notes(notes: Iterable[str]) -> list[RenderableType]:
    return [shown(f"note: {note}", "yellow") for note in merged(notes)]


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
        if trace.name.startswith("read-") and not (trace.rewrites or trace.skips or trace.notes):
            continue  # a dialect that the model does not have
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


def made_files(found: MadeFiles, explain: bool) -> list[RenderableType]:
    """The files of a conversion and their proofs; with `explain` also what the passes did."""
    files = _table("Files", "file", "content")
    for artifact in found.artifacts:
        files.add_row(shown(f"{found.stem}{artifact.suffix}"), artifact.summary)
    parts = [traces(found.traces, explain)] if explain else []
    parts.append(files)
    if found.proofs:
        parts.append(proofs(proof for proof in found.proofs if not proof.is_cost))
    return parts


def side_export(found: MadeFiles, explain: bool) -> RenderableType:
    """The full report of a model split into a float model and a side file."""
    return Group(*made_files(found, explain), *_notes(found.notes))


def conversion(found: Conversion, explain: bool) -> RenderableType:
    """The full report of a conversion; with `explain` also what concerns other CPUs only."""
    parts = made_files(found, explain)
    elsewhere = set() if explain else set(found.concerning_other_cpus)
    if found.cost is not None:
        judged = next((proof.report for proof in found.proofs if proof.is_cost), None)
        parts.append(_outputs("Cost of the changes", judged or found.cost, judged is not None))
    if explain and found.change is not None:
        parts += [
            shown(f"{trace.name}: {rewrite}")
            for trace in found.change.traces
            for rewrite in trace.rewrites
        ]
    told = [f for f in found.findings if explain or (f.severity != "info" and f not in elsewhere)]
    if told:
        title = f"Lint findings for {found.backend.name}"
        parts.append(lint_tables.findings(told, title, None if explain else 3, every=explain))
    parts += _notes(
        f"'{path}' does not belong to this conversion, perhaps to an earlier one; remove it, or "
        "write to another folder"
        for path in found.stale
    )
    return Group(*parts, *_notes(found.notes))


def qparams(
    found: QParamTable, title: str = "Quantizers", most: int | None = None
) -> RenderableType:
    """The quantization table: its first `most` rows."""
    numbers = ("range", "scale", "zero point", "axis")
    table = _table(title, "tensor", "role", "type", *numbers, right=numbers)
    for row in found.rows[:most]:
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
    left = 0 if most is None else len(found.rows) - most
    more = [shown(f"and {left} more rows", "dim")] if left > 0 else []
    logs = [shown(f"{row.tensor}: {row.role} {row.grid_text}") for row in found.logarithmic[:most]]
    return Group(table, *more, *logs)


def summary(found: Summary, most: int | None = None) -> RenderableType:
    """The content of a model: the first `most` rows of each table."""
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
        parts.append(qparams(found.table, most=most))
    if found.layers:
        layers = _table("Layers", "layer", "op", "input", "weight", "output")
        for layer in found.layers[:most]:
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
    for same in grouped(found.unread, lambda skip: skip.reason):
        names = first_names([skip.where for skip in same])
        count = f"{len(same)}: " if len(same) > 1 else ""
        parts.append(shown(f"not read: {count}{names}: {same[0].reason}", "yellow"))
    return Group(*parts, *_notes(found.notes))
