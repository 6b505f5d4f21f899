"""TVM on the files of the tvm backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.compare import NETWORKS, Measurement, measure, python, version_of, written

Record = Callable[[Measurement], Measurement]


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    version = version_of("apache-tvm", "make test-consumers installs it")
    run = python("run_tvm.py")
    found = record(measure("apache-tvm", version, written("tvm"), network, run, tmp_path))
    assert found.max_steps <= 1
