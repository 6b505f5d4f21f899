"""`onnxq report`, and `--report` of other commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from onnxq import cli
from onnxq.graph import save
from tests.models.reported import float_network, images, quantized_network


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save(float_network(), tmp_path / "float.onnx")
    save(quantized_network(), tmp_path / "q.onnx")
    np.savez(tmp_path / "data.npz", image=np.concatenate([f["image"] for f in images(2)]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(words))
    return int(ended.value.code or 0)


def test_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--against", "float.onnx", "--data", "data.npz", "--model-explorer", "explorer")
    assert run("report", "q.onnx", *words) == 0
    shown = capsys.readouterr().out
    assert "100 % of the operators on integers" in shown
    assert "report.html" in shown
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (folder / "explorer" / "error.json").is_file()


def test_report_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", "q.onnx", "-o", "r.html", "--samples", "1", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"] == ["r.html"]
    assert document["coverage"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "q.onnx", "-b", "tensorrt", "-o", "out"),
        ("quantize", "float.onnx", "-b", "tvm", "-o", "out", "--no-verify", "--method", "min-max"),
        ("verify", "q.onnx", "q.onnx"),
    ],
    ids=lambda words: words[0],
)
def test_other_commands_write_one_too(words: tuple[str, ...], folder: Path) -> None:
    assert run(*words, "--data", "data.npz", "--report", "pages/r.html") == 0
    page = (folder / "pages" / "r.html").read_text(encoding="utf-8")
    assert "data.npz" in page
    assert page.startswith("<!doctype html>")


def test_a_failed_comparison_has_a_report(folder: Path) -> None:
    assert run("verify", "float.onnx", "q.onnx", "--samples", "1", "--report", "r.html") == 1
    assert "not proven" in (folder / "r.html").read_text(encoding="utf-8")


def test_a_file_that_cannot_be_written_is_found_before_any_work(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "taken").mkdir()
    assert run("convert", "q.onnx", "-b", "tensorrt", "-o", "out", "--report", "taken") == 2
    assert "taken is a folder" in capsys.readouterr().err
    assert not (folder / "out").exists()
    assert run("report", "q.onnx", "-o", "taken") == 2
