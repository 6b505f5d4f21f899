"""IREE on the files of the iree backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.compare import NETWORKS, Measurement, measure, python, version_of, written

Record = Callable[[Measurement], Measurement]


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    version = version_of("iree-base-compiler", "make test-consumers installs it")
    run = python("run_iree.py")
    found = record(measure("iree", version, written("iree"), network, run, tmp_path))
    assert found.max_steps <= 1
