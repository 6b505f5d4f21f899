"""Findings and explanations for people; machines get `--json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from onnxq.views.alike import MOST_NAMES, grouped, pattern
from onnxq.views.screen import new_table, shown, shown_lines

if TYPE_CHECKING:
    from onnxq.glossary import Word
    from onnxq.lint.rule import Finding
    from onnxq.workflows.explain import Explanation
    from onnxq.workflows.lint_model import LintReport

_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def findings(
    found: Iterable[Finding], title: str = "Findings", most: int | None = None, every: bool = False
) -> RenderableType:
    """Findings as a table; places with messages that are alike share a row.

    Of each rule at most `most` rows are shown, and how many more places there are. With `every`,
    only places with the same message share a row, and all of them are named.
    """
    table = new_table(title, "", "where", "what", "next")
    rows: Counter[str] = Counter()
    hidden: Counter[tuple[str, str]] = Counter()
    for same in grouped(found, lambda f: _kind(f, every)):
        first, count = same[0], len(same)
        rows[first.rule] += 1
        if most is not None and rows[first.rule] > most:
            hidden[first.rule, first.severity] += count
            continue
        where = [finding.where for finding in same]
        if count > MOST_NAMES and not every:
            where[MOST_NAMES:] = [f"… {count} in all"]
        differ = any(finding.message != first.message for finding in same)
        table.add_row(
            shown(first.severity, _STYLES[first.severity]),
            shown_lines(where),
            shown(first.message + (" (the first; the others are alike)" if differ else "")),
            shown(first.fix),
        )
    for (rule, severity), count in hidden.items():
        table.add_row(
            shown(severity, _STYLES[severity]),
            f"{count} more",
            shown(rule),
            "--explain shows all of them",
        )
    return table


def _kind(finding: Finding, every: bool) -> tuple[str, ...]:
    texts = (finding.message, finding.fix)
    return (finding.rule, finding.severity, *(texts if every else map(pattern, texts)))


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
        table.add_row("quantized", shown(f"{row.role} {row.grid_text}"))
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


def definition(found: Word) -> RenderableType:
    """What a word means."""
    also = f" (also: {', '.join(found.also)})" if found.also else ""
    more = [shown(f"more: docs/{found.page}", "dim")] if found.page else []
    return Group(shown(f"{found.name}{also}", "bold"), shown(found.text), *more)
