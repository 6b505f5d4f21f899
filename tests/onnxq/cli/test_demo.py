"""The demonstration: every backend in one table, and what `--train` needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onnxq.backend import backends
from onnxq.cli import demo, main
from onnxq.views.screen import console


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of one run, and its document."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        text: list[str] = []
        patch.setattr("sys.stdout.write", text.append, raising=False)
        patch.setattr(demo, "_SECONDS", 0.1)
        with pytest.raises(SystemExit) as ended:
            main(["demo", "-o", str(folder), "--json"])
    assert not ended.value.code
    return folder, "".join(text)


def rows(text: str) -> dict[str, Any]:
    return {row["backend"]: row for row in json.loads(text)["backends"]}


def test_every_backend_is_proven(made: tuple[Path, str]) -> None:
    found = rows(made[1])
    assert list(found) == list(backends())
    assert all(row["proven"] for row in found.values())
    for row in found.values():
        assert all(Path(file).is_file() for file in row["files"])


def test_sizes_are_those_of_the_files_to_deploy(made: tuple[Path, str]) -> None:
    folder, text = made
    ncnn, float_bytes = rows(text)["ncnn"], (folder / "float.onnx").stat().st_size
    assert ncnn["deploy"] == ["demo.ncnn.param", "demo.ncnn.bin"]
    assert ncnn["bytes"] == sum((folder / "ncnn" / n).stat().st_size for n in ncnn["deploy"])
    assert json.loads(text)["float_bytes"] == float_bytes
    assert rows(text)["onnxruntime"]["bytes"] < 0.4 * float_bytes


def test_latency_is_measured_where_onnxruntime_is_the_runtime(made: tuple[Path, str]) -> None:
    found = rows(made[1])
    assert {name for name, row in found.items() if row["latency"] is not None} == {"onnxruntime"}


def test_a_changed_network_shows_its_cost(made: tuple[Path, str]) -> None:
    found = rows(made[1])
    assert found["tensorrt"]["sqnr"] is None
    assert found["vitis"]["sqnr"] > 20


def test_the_report_is_written(made: tuple[Path, str]) -> None:
    assert "<html" in (made[0] / "report.html").read_text(encoding="utf-8")[:200]


def test_the_screen_has_one_table_and_ends_with_the_report(made: tuple[Path, str]) -> None:
    screen = console()
    with screen.capture() as shown:
        screen.print(demo._table(json.loads(made[1]), made[0]))
    text = shown.get()
    assert text.count("┏") == 1
    assert len(text.splitlines()) < 32
    assert "report.html" in text.splitlines()[-1]


def test_a_failed_proof_is_shown() -> None:
    assert demo._proof({"proven": False}).plain == "FAILED"


def test_training_without_torch_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--train", "-o", str(tmp_path)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--train needs torch and sklearn" in said
    assert 'pip install ".[torch,demo]"' in said


def test_a_training_that_fails_says_how_to_see_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "_TRAINER", "onnxq.no_such_module")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--train", "-o", str(tmp_path)])
    assert ended.value.code == 2
    assert "python -m onnxq.no_such_module" in capsys.readouterr().err


def test_the_table_of_a_training_comes_from_its_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = [{"progress": "training"}, {"result": {"folder": "there", "backends": []}}]
    lines = "".join(json.dumps(line) + "\n" for line in told)
    (tmp_path / "a_training.py").write_text(f"print({lines!r}, end='')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(demo, "_TRAINER", "a_training")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--train", "-o", str(tmp_path), "--json"])
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out) == told[1]["result"]


def test_accuracies_stand_side_by_side() -> None:
    row = {"backend": "tvm", "algorithm": "lsq", "bits": "W8 A8", "proven": True}
    found = {"images": 360, "float": 0.981, "seconds": 14.0}
    screen = console()
    with screen.capture() as shown:
        table = [row | {"torch": 0.975, "onnxruntime": 0.974}]
        screen.print(demo._accuracies(found | {"backends": table}, Path("out")))
    assert "97.5%" in shown.get()
    assert "97.4%" in shown.get()
    assert "float: 98.1%" in shown.get()
