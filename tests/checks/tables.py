"""Tables that tests print: one row per test, all rows of a table together at the end of the run.

A test asks for the fixture and names the table and its columns:

    def test_speed(table_row):
        ...
        table_row("speed", network="resnet18", seconds=f"{seconds:.2f}")

The row travels in the test's report, so it arrives from the workers of pytest-xdist as well. A row
of a test that fails afterwards is shown too: that is when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

_PROPERTY = "table_row"

TableRow = Callable[..., None]


@pytest.fixture
def table_row(record_property: Callable[[str, object], None]) -> TableRow:
    """Adds a row to a table: `table_row(table, column=value, ...)`."""

    def add(table: str, /, **columns: object) -> None:
        # Workers send plain lists and strings only.
        cells = [[name, str(value)] for name, value in columns.items()]
        record_property(_PROPERTY, [table, cells])

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables, rows by test function and then by what is in them."""
    reports = [r for kind in terminalreporter.stats.values() for r in kind]
    tables: dict[str, list[dict[str, str]]] = {}
    for table, row in _rows(reports):
        tables.setdefault(table, []).append(row)
    for table, rows in tables.items():
        terminalreporter.section(table)
        for line in aligned(rows):
            terminalreporter.line(line)


def aligned(rows: list[dict[str, str]]) -> Iterator[str]:
    """A heading and one line per row; a cell that a row does not have stays empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([row.get(name, "") for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _rows(reports: Iterable[object]) -> Iterator[tuple[str, dict[str, str]]]:
    # Reports of set-up and teardown repeat the properties; warnings are no test reports.
    calls = [r for r in reports if isinstance(r, pytest.TestReport) and r.when == "call"]
    given = [(r.nodeid.partition("[")[0], _given(r)) for r in calls]
    for _, rows in sorted(given, key=lambda pair: (pair[0], [*map(str, pair[1])])):
        for table, cells in rows:
            yield table, dict(cells)


def _given(report: pytest.TestReport) -> list[Any]:
    return [value for name, value in report.user_properties if name == _PROPERTY]
