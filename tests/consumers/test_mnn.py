"""MNN: its converter reads the parameters, its runtime stays near."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.compare import NETWORKS, Measurement, measure, python, version_of, written

Record = Callable[[Measurement], Measurement]


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    version = version_of("MNN", "optional, pip install MNN")
    run = python("run_mnn.py")
    found = record(measure("MNN", version, written("mnn"), network, run, tmp_path))
    assert found.max_steps <= 10  # it rounds between operators in ways of its own
