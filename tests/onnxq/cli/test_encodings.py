"""The commands and options about side files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxq import cli
from onnxq.graph import load, save
from onnxq.side_files.side_file import formats
from onnxq.workflows import demo


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cli")
    save(demo.quantize(demo.build()), made / "demo.onnx")
    for name in ("aimet-1.0.0", "tensorrt-ranges"):
        assert call("encodings", made / "demo.onnx", "-f", name, "-o", made) == 0
    return made


def call(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_formats_lists_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("formats") == 0
    shown = capsys.readouterr().out
    assert call("formats", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [f["name"] for f in listed] == sorted(formats())
    for found in listed:
        assert found["name"] in shown
        assert found["detection"]


def test_encodings_writes_both_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("encodings", folder / "demo.onnx", "-f", "onnxq", "-o", tmp_path, "--json")
    assert call(*words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["proven"]
    assert document["format"] == "onnxq"
    assert {Path(p).name for p in document["files"]} == {"demo_float.onnx", "demo_onnxq.json"}
    assert call(*words[:-1], "--no-verify") == 0
    assert "not verified" in capsys.readouterr().out


def test_encodings_that_are_not_proven_end_with_1(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from onnxq.proof.prove import Proof

    monkeypatch.setattr(Proof, "passed", property(lambda self: False))
    assert call("encodings", folder / "demo.onnx", "-f", "onnxq", "-o", tmp_path) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"NOT PROVEN: the side file in {tmp_path / 'unproven'} does not match the model." in said
    assert "next: see what the passes did with --explain" in said


def test_an_unknown_format_ends_with_2(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("encodings", folder / "demo.onnx", "-f", "aimet-1.0", "-o", tmp_path / "new") == 2
    assert "did you mean 'aimet-1.0.0'" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_convert_run_and_inspect_take_encodings(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (folder / "demo_float.onnx", "--encodings", folder / "demo_aimet-1.0.0.json")
    assert call("convert", *given, "-b", "tensorrt", "-o", tmp_path) == 0
    assert "encodings read as aimet-1.0.0" in capsys.readouterr().out
    assert call("run", *given, "-p", "to-qdq", "-o", tmp_path / "q.onnx") == 0
    assert load(tmp_path / "q.onnx").nodes("DequantizeLinear")
    assert "encodings read as aimet-1.0.0" in capsys.readouterr().out
    assert call("verify", folder / "demo.onnx", tmp_path / "q.onnx") == 0
    assert "the models agree" in capsys.readouterr().out
    assert call("inspect", *given, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["table"]["rows"]) > 10
    assert all(layer["quantized"] for layer in document["layers"])
    assert "FakeQuantize" not in str(document["ops"])
    assert document["notes"] == ["encodings read as aimet-1.0.0"]


def test_what_does_not_fit_ends_with_2_and_one_message(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (folder / "demo_float.onnx", "--encodings", folder / "demo_tensorrt-ranges.json")
    out = ("-b", "tensorrt", "-o", tmp_path / "out")
    assert call("convert", *given, *out, "--strict") == 2
    message = capsys.readouterr().err
    assert "6 weights without a range" in message
    assert "--weights max" in message
    assert call("convert", *given, *out, "--strict", "--allow-missing") == 2
    assert "give one of --strict and --allow-missing" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert call("convert", *given, *out) == 0
    assert "weights without a range stay float" in capsys.readouterr().out
    assert call("convert", *given, *out, "--weights", "max") == 0
    assert "6 weights quantized from their own values" in capsys.readouterr().out
    assert call("convert", *given, *out, "--allow-missing") == 0
    assert "6 weights without a range" in capsys.readouterr().out


@pytest.mark.parametrize("option", [["--weights", "max"], ["--allow-missing"], ["--strict"]])
def test_options_that_need_encodings(
    option: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("inspect", folder / "demo.onnx", *option) == 2
    assert "--encodings FILE" in capsys.readouterr().err
