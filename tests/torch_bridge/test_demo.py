"""Digits: trained, deployed, and recognised alike by torch and onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")
pytest.importorskip("sklearn", reason="the digits are in scikit-learn")

from torch_bridge import demo  # noqa: E402


@pytest.mark.filterwarnings("ignore")
def test_a_table_for_some_backends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A QDQ file, a float model with ranges, and grids without a step that is learned."""
    told: list[str] = []
    monkeypatch.setattr(demo, "EPOCHS", 1)
    found = demo.run(tmp_path, told.append, only=("onnxruntime", "snpe", "nnie"))
    rows = {row["backend"]: row for row in found["backends"]}
    assert {name: row["algorithm"] for name, row in rows.items()} == {
        "nnie": "nnie",
        "onnxruntime": "lsq",
        "snpe": "lsq",
    }
    assert [row["bits"] for row in rows.values()] == ["logarithmic", "W8 A8", "W8 A8"]
    assert found["float"] > 0.94
    for row in rows.values():
        assert row["proven"]
        assert row["torch"] > found["float"] - 0.03
        assert abs(row["torch"] - row["onnxruntime"]) <= 2 / demo.TESTED
        assert all(Path(file).is_file() for file in row["files"])
    assert told[-1] == "training and deploying for snpe"


def test_a_program_reads_lines_of_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(folder: Path, tell: object) -> dict[str, object]:
        tell(f"to {folder}")
        return {"backends": []}

    threads: list[int] = []
    monkeypatch.setattr(demo, "run", run)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    demo.main("there")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"progress": "to there"}, {"result": {"backends": []}}]
    assert threads == [1]  # several are many times slower if other programs use the CPU
