"""The emulator of Qualcomm's HTP, through onnxruntime-qnn, on the QDQ files of the qnn backend.

Optional: `pip install onnxruntime-qnn` after reading the licence it comes with.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.compare import NETWORKS, Measurement, measure, python, version_of, written

Record = Callable[[Measurement], Measurement]


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    version = version_of("onnxruntime-qnn", "optional, pip install onnxruntime-qnn")
    run = python("run_qnn.py")
    found = record(measure("onnxruntime-qnn", version, written("qnn"), network, run, tmp_path))
    # Its kernels round sums in ways of their own: a single Add or Sigmoid is up to 2 steps off.
    assert found.max_steps <= 4
