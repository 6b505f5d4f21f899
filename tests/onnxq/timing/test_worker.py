"""The child's side, in this process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from onnxq.errors import UnsupportedModelError, VerifyError
from onnxq.graph import save
from onnxq.timing.worker import Worker
from tests.models.build import parse

RELU = "g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }"


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def opened(body: str, folder: Path, threads: int = 1) -> Worker:
    path = folder / "m.onnx"
    save(parse(body), path)
    worker = Worker()
    worker.open(str(path), threads)
    return worker


def test_turns_return_a_time_for_each_run(tmp_path: Path) -> None:
    worker = opened(RELU, tmp_path, threads=2)
    worker.take([{"x": np.zeros((n, 3), np.float32)} for n in (1, 2)])
    assert worker.warm(0.001) > 0
    assert not gc.isenabled()
    for number in range(3):
        runs = worker.turn(number, 4)
        assert len(runs) == 4
        assert min(run.seconds for run in runs) > 0
    worker.survey(str(tmp_path))
    assert gc.isenabled()


def test_sizes_that_the_parent_chose_are_kept(tmp_path: Path) -> None:
    worker = opened(RELU, tmp_path)
    (x,) = worker._session.inputs
    (filled,) = worker.fill((type(x)("x", (5, 3), x.type, x.dtype),), 0)
    assert filled.shape == (5, 3)


def test_a_sample_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    worker = opened(RELU, tmp_path)
    with pytest.raises(VerifyError, match=r"could not run '.*m\.onnx'"):
        worker.take([{"x": np.zeros((2, 4), np.float32)}])


def test_types_that_numpy_lacks(tmp_path: Path) -> None:
    worker = opened("g (float[3] x) => (bfloat16[3] y) { y = Cast<to = 16>(x) }", tmp_path)
    worker.take([{"x": np.ones(3, np.float32)}])
    assert worker.warm(0.001) > 0
    worker = opened("g (bfloat16[3] x) => (float[3] y) { y = Cast<to = 1>(x) }", tmp_path)
    worker.take([{"x": np.ones(3, ml_dtypes.bfloat16)}])
    assert len(worker.turn(0, 2)) == 2


def test_an_operator_that_onnxruntime_lacks(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="onnxruntime cannot load"):
        opened("g (float[3] x) => (float[3] y) { y = NoSuch(x) }", tmp_path)


def test_weights_in_a_data_file_are_found_when_profiling(tmp_path: Path) -> None:
    weight = "float[64, 64] w = {" + ",".join(["0.5"] * 4096) + "}"
    model = parse(f"g (float[1, 64] x) => (float[1, 64] y) <{weight}> {{ y = MatMul(x, w) }}")
    path = tmp_path / "m.onnx"
    save(model, path, external_data=True)
    assert (tmp_path / "m.onnx.data").exists()
    worker = Worker()
    worker.open(str(path), 1)
    worker.take([{"x": np.ones((1, 64), np.float32)}])
    (tmp_path / "scratch").mkdir()
    assert worker.survey(str(tmp_path / "scratch")).counts["float"] == 1
