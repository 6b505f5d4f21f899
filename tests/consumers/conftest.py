"""Measurements of all tests here, written to the file that ONNXQ_CONSUMERS_JSON names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.consumers.compare import Measurement


@pytest.fixture(scope="session")
def record() -> Iterator[Callable[[Measurement], Measurement]]:
    """Takes a measurement down; those of consumers that did not run stay in the file."""
    made: list[Measurement] = []

    def note(measurement: Measurement) -> Measurement:
        made.append(measurement)
        return measurement

    yield note
    path = os.environ.get("ONNXQ_CONSUMERS_JSON")
    if not path or not made:
        return
    file, ran = Path(path), {m.consumer for m in made}
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    rows = [row for row in before if row["consumer"] not in ran] + [m.to_json() for m in made]
    keys = ("consumer", "backend", "variant", "network", "reference")
    rows.sort(key=lambda row: [row[key] or "" for key in keys])
    file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
