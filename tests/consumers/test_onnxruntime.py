"""onnxruntime's default session on the files of the onnxruntime backend.

Its 8-bit kernels saturate on CPUs with AVX2 but without VNNI. There the files for such CPUs stand
in for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checks.saturating import cpu_saturates
from tests.consumers.compare import NETWORKS, Measurement, measure, python, version_of, written

Record = Callable[[Measurement], Measurement]


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    version, backend = version_of("onnxruntime", "onnxq needs it"), written("onnxruntime")
    run = python("run_onnxruntime.py")
    variant = "avx2" if cpu_saturates() else None
    case = ("onnxruntime", version, backend, network, run, tmp_path)
    same = record(measure(*case, variant=variant, int32_biases=True))
    assert same.max_steps <= 1
    # It rounds float biases: each layer moves a few codes, which add up on the way to the output.
    rounded = record(measure(*case, variant=variant))
    assert rounded.max_steps <= 2
