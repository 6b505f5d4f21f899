"""One walk from a model to proven files: nothing is read, opened or run twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from onnxq.graph import Model, save
from onnxq.pass_ import Pass
from onnxq.pipeline import Dump, Pipeline
from onnxq.proof import prove as proof
from onnxq.reading import READERS, canonical
from onnxq.running.sessions import Session
from onnxq.storage import model_files
from onnxq.workflows.convert import Conversion, convert
from onnxq.workflows.demo import build, quantize
from onnxq.workflows.side_export import export_side_file

SAMPLES = 3


def subclasses(kind: type[Pass]) -> Iterator[type[Pass]]:
    for below in kind.__subclasses__():
        yield below
        yield from subclasses(below)


class Work:
    """What was done: runs of passes and of sessions, reads of files, calls of methods."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passes: Counter[str] = Counter()
        self.files: Counter[str] = Counter()
        self.sessions = 0
        self.runs: Counter[Session] = Counter()
        self.methods: Counter[str] = Counter()
        for kind in {*subclasses(Pass)}:
            if "run" in vars(kind):
                self._count(monkeypatch, kind, "run", lambda step: self.passes.update([step.name]))
        for name in ("clone", "to_proto"):
            self._count(monkeypatch, Model, name, lambda _, n=name: self.methods.update([n]))
        self._count(monkeypatch, Session, "run", lambda session: self.runs.update([session]))
        work, read = self, model_files.read_bytes

        def read_bytes(path: Path, *arguments: Any) -> bytes:
            self.files[path.name] += 1
            return read(path, *arguments)

        class Opened(onnxruntime.InferenceSession):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                work.sessions += 1
                super().__init__(*arguments, **named)

        monkeypatch.setattr(model_files, "read_bytes", read_bytes)
        monkeypatch.setattr(onnxruntime, "InferenceSession", Opened)

    @staticmethod
    def _count(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, told: Any) -> None:
        method = getattr(kind, name)

        def counted(self: Any, *arguments: Any, **named: Any) -> Any:
            told(self)
            return method(self, *arguments, **named)

        monkeypatch.setattr(kind, name, counted)


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    (path,) = save(quantize(build()), tmp_path / "demo.onnx")
    return path


def walked(path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Work, Conversion]:
    convert(path, backend, verify=False)  # imports its passes
    work = Work(monkeypatch)
    done = convert(path, backend, count=SAMPLES)
    assert done.proven
    assert not any(finding.severity == "error" for finding in done.findings)  # as the command asks
    return work, done


def test_a_conversion_for_tensorrt(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models and two side files, each of which is read back into a model of its own."""
    work, done = walked(demo, "tensorrt", monkeypatch)
    assert [work.passes[name] for name in READERS] == [1] * len(READERS)
    twice = {name for name, times in work.passes.items() if times > 1}
    # For each side file; once to look at the model, and once for the float model.
    # Lint infers types as well, of the model that is read.
    assert twice == {"apply-qparams", "collect-qparams", "infer-shapes", "remove-fake-quant"}
    assert max(work.passes.values()) == 2
    assert work.files == {"demo.onnx": 1, "model_qdq.onnx": 1, "model_deploy_model.onnx": 1}
    # The source, the QDQ model, and the float model with the ranges of each side file.
    assert work.sessions == 4
    # The source also finds the size of its batch.
    assert sorted(work.runs.values()) == [SAMPLES, SAMPLES, SAMPLES, SAMPLES + 1]
    # to_proto: shape inference, two files, three models that are run from memory.
    assert work.methods == {"clone": 8, "to_proto": 7}
    names = [trace.name for trace in done.traces]
    assert names[: len(READERS)] == list(READERS)
    assert len(names) == len({*names})


def test_a_conversion_for_onnxruntime(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file in three sessions; the deployed one serves two comparisons."""
    work, _ = walked(demo, "onnxruntime", monkeypatch)
    assert max(work.passes[name] for name in (*READERS, "collect-qparams")) == 1
    assert work.files == {"demo.onnx": 1, "model_qdq.onnx": 1}
    # Lint asks twice what onnxruntime makes of the file, without its large weights.
    assert work.sessions == 4 + 2
    # The trusted model on the samples of the proof, the deployed one also on four of its own; both
    # find the size of their batch.
    assert sorted(work.runs.values()) == [SAMPLES, 4, SAMPLES + 1, SAMPLES + 4 + 1]


def test_encodings_are_no_reason_to_read_again(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, encodings = export_side_file(demo, "onnxq").save(tmp_path / "apart")
    work = Work(monkeypatch)
    done = convert(model, "tensorrt", encodings=encodings)
    assert done.proven
    assert [work.passes[name] for name in READERS] == [1] * len(READERS)


def test_results_that_are_not_kept_are_made_again(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded: then the source is run again, and the proofs are the same."""
    kept = convert(demo, "tensorrt", count=SAMPLES)
    monkeypatch.setattr(proof, "KEPT", 20_000)  # one sample
    work, again = walked(demo, "tensorrt", monkeypatch)
    assert again.proofs == kept.proofs
    assert max(work.runs.values()) > SAMPLES + 1
    assert work.sessions == 4


def test_dumps_are_numbered_as_the_backend_shows_its_passes(demo: Path, tmp_path: Path) -> None:
    done = convert(demo, "tensorrt", verify=False, observers=(Dump(tmp_path / "dump"),))
    shown = [step.name for step in done.backend.pipeline]
    dumped = [p.stem for p in sorted((tmp_path / "dump").glob("*.onnx"))]
    assert [name[:2] for name in dumped] == [f"{n:02d}" for n in range(1, len(dumped) + 1)]
    assert [name[3:] for name in dumped if name[3:] != "fit-grids"] == shown


def test_the_caller_keeps_a_pipeline_that_reads(demo: Path) -> None:
    """What is shown of a backend is whole: on its own it makes of any model what convert does."""
    done = convert(demo, "onnxruntime", verify=False)
    whole = Pipeline(*done.backend.pipeline, *done.backend.outputs[0].pipeline)  # type: ignore[union-attr]
    made = whole.run(canonical(done.source)[0]).model
    assert made.to_proto() == done.model.to_proto()
