"""ncnn on its own files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxq.ncnn.writer import write
from tests.consumers.compare import NETWORKS, Measurement, measure, python, version_of, written
from tests.models.build import run
from tests.onnxq.ncnn.cases import CASES, graph, int8, values

Record = Callable[[Measurement], Measurement]


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    version = version_of("ncnn", "make test-consumers installs it")
    run = python("run_ncnn.py")
    found = record(
        measure("ncnn", version, written("ncnn"), network, run, tmp_path, suffix=".ncnn.param")
    )
    assert found.max_steps <= 1


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_operator(name: str, quantized: bool, tmp_path: Path) -> None:
    version_of("ncnn", "make test-consumers installs it")
    model, x = int8(name) if quantized else graph(name), values(name)
    files = write(model)
    (tmp_path / "m.param").write_text(str(files["param"]), "utf-8")
    (tmp_path / "m.bin").write_bytes(bytes(files["bin"]))
    found = python("run_ncnn.py")(tmp_path / "m.param", {"x/0": x}, ["y"], tmp_path).values
    (want,) = run(model, x)
    np.testing.assert_allclose(found["y/0"].reshape(want.shape), want, rtol=1e-4, atol=1e-5)
