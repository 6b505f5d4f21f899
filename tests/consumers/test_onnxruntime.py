"""onnxruntime's default session on the files of the onnxruntime backend.

On a CPU without VNNI its 8-bit kernels saturate, so the limits hold where there is VNNI.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.compare import NETWORKS, Measurement, measure, python, version_of, written

Record = Callable[[Measurement], Measurement]


def _has_vnni() -> bool:
    flags = Path("/proc/cpuinfo")
    return flags.is_file() and "vnni" in flags.read_text(encoding="utf-8")


@pytest.mark.skipif(not _has_vnni(), reason="without VNNI onnxruntime's default session saturates")
@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    version, backend = version_of("onnxruntime", "onnxq needs it"), written("onnxruntime")
    run = python("run_onnxruntime.py")
    same = record(
        measure("onnxruntime", version, backend, network, run, tmp_path, int32_biases=True)
    )
    assert same.max_steps <= 1
    # It rounds float biases: each layer moves a few codes, which add up on the way to the output.
    rounded = record(measure("onnxruntime", version, backend, network, run, tmp_path))
    assert rounded.max_steps <= 2
