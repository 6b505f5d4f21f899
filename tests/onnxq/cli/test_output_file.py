"""No command writes over what it reads, or under a misleading name."""

from __future__ import annotations

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


def run(words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(words.split())
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    "words",
    [
        "calibrate float.onnx -b tvm --data data.npz -o float.onnx",
        "calibrate float.onnx -b tvm --data data.npz -o ./data.npz",
        "calibrate merge data.npz -o data.npz",
        "report q.onnx --against float.onnx -o float.onnx",
        "report q.onnx --data data.npz -o data.npz",
        "report q.onnx -o q.onnx",
        "quantize float.onnx -b tvm --data data.npz -o out --report float.onnx",
        "convert q.onnx -b tensorrt -o out --report q.onnx",
        "verify q.onnx q.onnx --data data.npz --report data.npz",
    ],
)
def test_what_a_command_reads_stays(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run(words) == 2
    shown = capsys.readouterr().err
    assert "is an input of this command, and would be replaced" in shown
    assert "next: give another name" in shown
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("quantize float.onnx -b tvm --data data.npz -o out --report out/float_qdq.onnx", ".html"),
        ("calibrate float.onnx -b tvm --data data.npz -o new.npz", ".stats"),
        ("run q.onnx -p drop-identity -o data.npz", ".onnx"),
    ],
)
def test_a_misleading_name_is_refused(
    words: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    shown = capsys.readouterr().err
    assert "but what is written is no such file" in shown
    assert f"next: give a name that ends with {name}" in shown
    assert not (folder / "out").exists()
