"""Measurements of all tests here, written to the file that ONNXQ_CONSUMERS_JSON names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checks.tables import TableRow
from tests.consumers.compare import Measurement, tell_lowered


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    names = ("consumer", "backend", "variant", "network", "biases")
    return tuple(row[name] or "" for name in names)


@pytest.fixture
def record(
    measurements: list[Measurement], table_row: TableRow
) -> Callable[[Measurement], Measurement]:
    """Takes a measurement down; the end of the run names runtimes that had to be lowered."""

    def note(measurement: Measurement) -> Measurement:
        measurements.append(measurement)
        tell_lowered(measurement, table_row)
        return measurement

    return note


@pytest.fixture(scope="session")
def measurements() -> Iterator[list[Measurement]]:
    """All of them; what did not run stays in the file, unless of another version."""
    made: list[Measurement] = []
    yield made
    path = os.environ.get("ONNXQ_CONSUMERS_JSON")
    if not path or not made:
        return
    file = Path(path)
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    rows = {_key(row): row for row in (*before, *(m.to_json() for m in made))}
    versions = {m.consumer: m.version for m in made}
    kept = [r for r in rows.values() if r["version"] == versions.get(r["consumer"], r["version"])]
    kept.sort(key=_key)
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
