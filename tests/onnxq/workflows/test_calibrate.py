"""Calibration as a whole: one process, shards, processes and a cluster give the same bytes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.errors import LoadError, OptionError
from onnxq.graph import save
from onnxq.observing.progress_files import ProgressFiles
from onnxq.observing.statistics import Statistics, merged
from onnxq.workflows import calibrate as workflow
from onnxq.workflows import demo
from onnxq.workflows.calibrate import calibrate
from tests.models.build import parse

SAMPLES = 18


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("calibrate")
    save(demo.build(), made / "m.onnx")
    images = np.random.default_rng(0).normal(size=(SAMPLES, 3, 32, 32)).astype(np.float32)
    np.savez(made / "d.npz", image=images)
    return made


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    return run(folder).dumps()


def run(folder: Path, **options: Any) -> Statistics:
    return calibrate(folder / "m.onnx", folder / "d.npz", backend="onnxruntime", **options)


def test_eight_shards_in_any_order_are_one_run(folder: Path, whole: bytes) -> None:
    shards = [run(folder, shard=f"{number}/8") for number in range(1, 9)]
    assert [s.samples for s in shards] == [3, 3, 2, 2, 2, 2, 2, 2]
    for order in (shards, shards[::-1], shards[3:] + shards[:3]):
        assert merged(order).dumps() == whole


def test_two_processes_give_the_same_bytes(folder: Path, whole: bytes) -> None:
    assert run(folder, jobs=2).dumps() == whole


@dataclass
class DeadlyOnce(Sequence[np.ndarray]):
    """Samples that kill the first worker that reads them."""

    path: Path
    killed: Path
    home: int = field(default_factory=os.getpid)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: Any) -> Any:
        if os.getpid() != self.home and index == 1:
            with contextlib.suppress(FileExistsError):
                self.killed.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        with np.load(self.path) as found:
            return found["image"][range(SAMPLES)[index]]


def test_a_process_that_is_killed_on_the_way_changes_nothing(
    folder: Path, whole: bytes, tmp_path: Path
) -> None:
    data = DeadlyOnce(folder / "d.npz", tmp_path / "killed")
    found = calibrate(folder / "m.onnx", data, backend="onnxruntime", jobs=2)
    assert data.killed.exists()
    assert found.dumps() == whole


def test_any_executor_does(folder: Path, whole: bytes) -> None:
    with ThreadPoolExecutor(2) as executor:
        assert run(folder, executor=executor).dumps() == whole
        first = run(folder, executor=executor, shard="1/3").dumps()
        assert first == run(folder, shard="1/3").dumps()


def test_a_model_and_arrays_in_memory(folder: Path, whole: bytes) -> None:
    with np.load(folder / "d.npz") as found:
        images = found["image"]
    alone = calibrate(demo.build(), images, backend="onnxruntime").dumps()
    assert alone == whole
    with ThreadPoolExecutor(2) as executor:
        shared = calibrate(demo.build(), images, backend="onnxruntime", executor=executor)
    assert shared.dumps() == whole


def test_some_samples_and_rules_that_change_nothing(folder: Path) -> None:
    found = run(folder, samples=5, settings=[["classifier", "float"]])
    assert found.samples == 5
    assert found.dumps() == run(folder, samples=5).dumps()


@pytest.mark.parametrize("executor", [False, True])
def test_a_run_goes_on_where_it_was_interrupted(
    executor: bool, folder: Path, whole: bytes, tmp_path: Path
) -> None:
    calls = iter(range(100))

    def progress(text: str) -> None:
        if text.startswith("calibrating") and (executor or next(calls) == 7):
            raise KeyboardInterrupt

    files = ProgressFiles.beside(tmp_path / "all.stats")
    with ThreadPoolExecutor(2) as pool:
        options: dict[str, Any] = {"resume": files.whole}
        if executor:
            options["executor"] = pool
        with pytest.raises(KeyboardInterrupt):
            run(folder, **options, progress=progress)
        assert len(files.found()) == (8 if executor else 1)
        if executor:
            files.found()[3].unlink()
        assert run(folder, **options).dumps() == whole


class Interrupting(Sequence[Any]):
    """Samples the sixth of which interrupts the process that started the worker."""

    def __init__(self, samples: list[Any], marker: Path) -> None:
        self.samples, self.marker = samples, marker

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, at: Any) -> Any:
        if at == 6:
            try:
                self.marker.touch(exist_ok=False)
                os.kill(os.getppid(), signal.SIGINT)
            except FileExistsError:
                pass
            else:
                time.sleep(60)  # until this process is told to end
        return self.samples[at]


@pytest.mark.skipif(os.name == "nt", reason="Windows ends processes without a signal")
def test_processes_keep_what_they_know_on_an_interrupt(
    folder: Path, whole: bytes, tmp_path: Path
) -> None:
    with np.load(folder / "d.npz") as stored:
        samples = [{name: stored[name][at] for name in stored} for at in range(SAMPLES)]
    files = ProgressFiles.beside(tmp_path / "all.stats")
    data = Interrupting(samples, tmp_path / "interrupted")
    options: dict[str, Any] = {"backend": "onnxruntime", "resume": files.whole, "jobs": 2}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            calibrate(folder / "m.onnx", data, **options)
    finally:
        signal.signal(signal.SIGINT, before)
    left = [Statistics.load(path) for path in files.found()]
    assert any(each.samples and each.unfinished for each in left)
    assert calibrate(folder / "m.onnx", data, **options).dumps() == whole


def test_files_of_one_process_are_not_taken_by_several(folder: Path, tmp_path: Path) -> None:
    resume = tmp_path / "a.partial"
    assert run(folder, resume=resume, samples=2).samples == 2
    with pytest.raises(LoadError, match="another number of processes"):
        run(folder, resume=resume, samples=2, jobs=2)


# -- a cluster ----------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip(
        "distributed", reason="dask.distributed is not installed (the extra 'cluster')"
    )
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as made:
        yield made


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_gives_the_same_bytes_though_a_worker_is_killed(
    cluster: Any, folder: Path, whole: bytes, tmp_path: Path
) -> None:
    address = cluster.scheduler_address
    assert run(folder, cluster=address).dumps() == whole
    data = DeadlyOnce(folder / "d.npz", tmp_path / "killed")
    found = calibrate(folder / "m.onnx", data, backend="onnxruntime", cluster=address)
    assert data.killed.exists()
    assert found.dumps() == whole


def test_without_dask_the_error_says_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(workflow.importlib, "import_module", absent)
    with pytest.raises(OptionError, match=r"dask\.distributed") as error:
        run(folder, cluster="tcp://127.0.0.1:1")
    assert error.value.fix == "pip install distributed"


def test_a_cluster_that_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        @staticmethod
        def Client(address: str, timeout: int) -> None:
            raise OSError(f"no connection to {address} in {timeout} s")

    monkeypatch.setattr(workflow.importlib, "import_module", lambda _: Absent)
    with pytest.raises(OptionError, match=r"no cluster at 'tcp://127\.0\.0\.1:1'") as error:
        run(folder, cluster="tcp://127.0.0.1:1")
    assert "dask scheduler" in error.value.fix


# -- what is wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"jobs": 0}, "0 processes"),
        ({"jobs": 100_000}, "100000 processes are more than this machine can use"),
        ({"jobs": 2, "cluster": "tcp://a:1"}, "several ways"),
        ({"samples": 0}, "no 0 samples"),
        ({"shard": "9/8"}, "not a part"),
        ({"backend": "tensorr"}, "tensorr"),
        ({"settings": [["nothing", "float"]]}, "no layer matches"),
    ],
)
def test_wrong_options_are_errors(options: dict[str, Any], named: str, folder: Path) -> None:
    with pytest.raises(OptionError, match=named):
        calibrate(folder / "m.onnx", folder / "d.npz", **({"backend": "onnxruntime"} | options))


def test_without_data_there_is_an_error(folder: Path) -> None:
    with pytest.raises(LoadError, match="need data"):
        calibrate(folder / "m.onnx", None, backend="onnxruntime")


def test_data_that_can_be_read_once_is_for_one_process(folder: Path) -> None:
    images = (np.zeros((1, 3, 32, 32), np.float32) for _ in range(3))
    with pytest.raises(OptionError, match="only once"):
        calibrate(folder / "m.onnx", images, backend="onnxruntime", jobs=2)


def test_nothing_to_observe_is_an_error() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Sin(x) }")
    with pytest.raises(LoadError, match="nothing to observe"):
        calibrate(model, np.zeros((3, 2), np.float32), backend="onnxruntime")


def test_no_samples_for_all_workers_together(folder: Path) -> None:
    with (
        ThreadPoolExecutor(2) as executor,
        pytest.raises(LoadError, match="no sample is left for part 19/19"),
    ):
        run(folder, executor=executor, shard="19/19")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sample_that_is_not_finite_is_named(jobs: int, folder: Path, tmp_path: Path) -> None:
    images = np.zeros((8, 3, 32, 32), np.float32)
    images[5, 1, 2, 3] = np.nan
    np.savez(tmp_path / "bad.npz", image=images)
    with pytest.raises(LoadError, match=r"sample 6 .*input 'image'"):
        calibrate(folder / "m.onnx", tmp_path / "bad.npz", backend="onnxruntime", jobs=jobs)
