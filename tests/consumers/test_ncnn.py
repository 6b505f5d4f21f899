"""ncnn on its own files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.compare import NETWORKS, Measurement, measure, python, version_of, written

Record = Callable[[Measurement], Measurement]


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    version = version_of("ncnn", "make test-consumers installs it")
    run = python("run_ncnn.py")
    found = record(
        measure("ncnn", version, written("ncnn"), network, run, tmp_path, suffix=".ncnn.param")
    )
    assert found.max_steps <= 1
