"""onnxruntime's WebAssembly build, under node, on the files of the onnxruntime backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.compare import NETWORKS, Measurement, measure, node, node_packages, written

Record = Callable[[Measurement], Measurement]


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    packages, version = node_packages("onnxruntime-web")
    backend, run = written("onnxruntime"), node("run_onnxruntime_web.mjs", packages)
    same = record(
        measure("onnxruntime-web", version, backend, network, run, tmp_path, int32_biases=True)
    )
    assert same.max_steps <= 1
    # It rounds float biases: each layer moves a few codes, which add up on the way to the output.
    rounded = record(measure("onnxruntime-web", version, backend, network, run, tmp_path))
    assert rounded.max_steps <= 2
