"""Latencies side by side, and what runs in float, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table

from onnxq.views.alike import merged
from onnxq.views.screen import escaped, shown

if TYPE_CHECKING:
    from onnxq.timing.survey import FloatNode, Survey
    from onnxq.workflows.bench import Bench, Latency

_WIDTH = 100
_MOST_NODES = 5
_SMALL = 0.005


def latencies(found: Bench) -> RenderableType:
    """The comparison, what is kept in float, and notes."""
    times = Table(
        title=f"Latency, {_counted(found.threads, 'thread')}, {_counted(found.rounds, 'round')}",
        title_justify="left",
        title_style="bold",
        header_style="bold",
        width=_WIDTH,
    )
    times.add_column("model", overflow="fold", ratio=1)
    for column in ("ms", "quartiles", "ratio", "MB", "on codes", "float", "Q/DQ"):
        times.add_column(column, justify="right", no_wrap=True)
    for row in found.models:
        times.add_row(shown(row.model), *_cells(row))
    parts: list[RenderableType] = [times]
    parts += (_float_nodes(row, row.survey) for row in found.models if _has_costs(row.survey))
    parts += (shown(f"{row.model}: {row.failure}", "bold red") for row in _dead(found))
    parts += (shown(f"note: {note}", "yellow") for note in merged(found.notes))
    return Group(*parts)


def _dead(found: Bench) -> Iterator[Latency]:
    return (row for row in found.models if row.failure)


def _cells(row: Latency) -> list[RenderableType]:
    size = _short(row.file_bytes / 1e6)
    if row.milliseconds is None:
        return [shown("died", "bold red"), "", "", size, "", "", ""]
    return [
        _short(row.milliseconds.median),
        f"{_short(row.milliseconds.low)}–{_short(row.milliseconds.high)}",
        "" if row.ratio is None else f"{row.ratio.median:.2f}",
        size,
        *_survey_cells(row.survey),
    ]


def _survey_cells(survey: Survey | None) -> list[str]:
    if survey is None:
        return ["", "", ""]
    parts = (survey.shares.get("float", 0.0), survey.shares.get("conversion", 0.0))
    return [f"{survey.on_codes} of {survey.compared}", *map(_percent, parts)]


def _has_costs(survey: Survey | None) -> bool:
    return survey is not None and bool(_shown_nodes(survey))


def _shown_nodes(survey: Survey) -> list[FloatNode]:
    costly = [n for n in survey.float_nodes if n.share + n.conversions >= _SMALL]
    return costly[:_MOST_NODES]


def _float_nodes(row: Latency, survey: Survey | None) -> RenderableType:
    assert survey is not None
    nodes = _shown_nodes(survey)
    made = Table(
        title=shown(f"Kept in float beside codes: {row.model}", "bold"),
        title_justify="left",
        header_style="bold",
        width=_WIDTH,
    )
    made.add_column("node", overflow="fold", ratio=2)
    made.add_column("operator", overflow="fold", max_width=18)
    made.add_column("time", justify="right", no_wrap=True)
    made.add_column("+ Q/DQ", justify="right", no_wrap=True)
    made.add_column("why", overflow="fold", ratio=3)
    for node in nodes:
        why = node.reason or _between(node)
        costs = (_percent(node.share), _percent(node.conversions))
        made.add_row(shown(escaped(node.node)), shown(node.op), *costs, shown(why))
    rest = survey.float_nodes_in_all - len(nodes)
    more = f"; those not listed cost less: {rest}" if rest else ""
    islands = _counted(survey.islands, "float island")
    operators = _counted(survey.float_nodes_in_all, "operator")
    return Group(made, shown(f"{islands} with {operators}{more}"))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _between(node: FloatNode) -> str:
    before, after = ", ".join(node.before), ", ".join(node.after)
    return " ".join(
        part for part in (f"after {before}" * bool(before), f"before {after}" * bool(after)) if part
    )


def _short(value: float) -> str:
    """A number in at most six characters, as long as it is below a million."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= _SMALL or not share else "<1 %"


__all__ = ["latencies"]
