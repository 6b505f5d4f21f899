"""Findings and explanations for people; machines get `--json`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from rich.console import Group, RenderableType

from onnxq.cli.screen import new_table, shown, shown_lines
from onnxq.lint.rule import Finding
from onnxq.quant.log_params import LogParams
from onnxq.workflows.explain import Explanation
from onnxq.workflows.lint_model import LintReport

_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def findings(
    found: Iterable[Finding], title: str = "Findings", most: int | None = None
) -> RenderableType:
    """Findings as a table; places with the same message share a row.

    Of each rule at most `most` rows are shown, and how many more places there are.
    """
    table = new_table(title, "", "where", "what", "next")
    places: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for finding in found:
        places[finding.rule, finding.severity, finding.message, finding.fix].append(finding.where)
    rows: Counter[str] = Counter()
    hidden: Counter[tuple[str, str]] = Counter()
    for (rule, severity, message, fix), where in places.items():
        rows[rule] += 1
        if most is not None and rows[rule] > most:
            hidden[rule, severity] += len(where)
            continue
        more = [f"and {len(where) - 5} more"] if len(where) > 5 else []
        table.add_row(
            shown(severity, _STYLES[severity]),
            shown_lines(where[:5] + more),
            shown(message),
            shown(fix),
        )
    for (rule, severity), count in hidden.items():
        table.add_row(
            shown(severity, _STYLES[severity]),
            f"{count} more",
            shown(rule),
            "--explain shows all of them",
        )
    return table


def reports(found: Iterable[LintReport]) -> RenderableType:
    """The findings of every model."""
    parts: list[RenderableType] = []
    for report in found:
        if report.findings:
            parts.append(findings(report.findings, f"{report.model} for {report.backend}"))
        counted = [(report.count(s), s) for s in ("error", "warning")]
        counts = [f"{n} {s}{'' if n == 1 else 's'}" for n, s in counted]
        style = "green" if report.passed(strict=True) else "yellow" if report.passed() else "red"
        parts.append(shown(f"{report.model}: {', '.join(counts)}", style))
    return Group(*parts)


def explanation(found: Explanation) -> RenderableType:
    """The explanation of one tensor."""
    table = new_table(found.tensor, "", "")
    table.show_header = False
    table.columns[0].style = "bold"
    for row in found.quantizers:
        if isinstance(row, LogParams):
            grid = f"{row.role} logarithmic, largest magnitude {row.data_max:.6g}"
            table.add_row("quantized", shown(grid))
            continue
        scale, zero = row.scale.reshape(-1), row.zero_point.reshape(-1)
        grid = f"scale {scale[0]:.6g}, zero point {zero[0]}"
        if scale.size > 1:
            grid = f"{scale.size} scales {scale.min():.4g}..{scale.max():.4g} on axis {row.axis}"
        table.add_row("quantized", shown(f"{row.role} {row.qtype} {row.lo}..{row.hi}, {grid}"))
    if not found.quantizers:
        table.add_row("quantized", shown("no", "yellow"))
    table.add_row("rule", shown(found.rule))
    for line in found.origin:
        table.add_row("origin", shown(line))
    if found.maker:
        made = found.maker + (f": {found.made_in}" if found.made_in else "")
        table.add_row("producer", shown(made))
    if found.module:
        table.add_row("torch module", shown(found.module))
    for use in found.uses:
        module = f" of {use.module}" if use.module else ""
        fate = f": {use.fate}" if use.fate else ""
        table.add_row("consumers", shown(f"{use.node}{module}{fate}"))
    if found.selectors:
        names = ", ".join(f"{s!r}" for s in found.selectors)
        table.add_row("to exclude", shown(f"tb.prepare(..., exclude=[{names}])"))
    return table
