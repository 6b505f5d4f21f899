"""The page of recast files counts what the results say."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.checks import recast_matrix
from tests.checks.recast_matrix import main, stored
from tests.checks.recast_page import Cell, Summary

CELLS = [
    Cell("A1/a", "mnn", "kept"),
    Cell("A1/b", "mnn", "recast", sqnr=30.0),
    Cell("A1/c", "mnn", "data", sqnr=20.0),
    Cell("A1/d", "mnn", "recast", sqnr=40.0),
    Cell("A1/a", "qnn", "kept", "model.onnx failed", "use qnn's scheme", passed=False, sqnr=1.0),
    Cell("A1/b", "qnn", "refused", "2 quantizers at 'x' |", "give 'y'", passed=False),
    Cell(
        "A1/c", "qnn", "refused", "1 quantizer at 'z' |", "give 'y'; supported: a, b", passed=False
    ),
    Cell("A1/d", "qnn", "kept", sqnr=float("inf")),
]


def test_rows() -> None:
    page = Summary(CELLS, unread=3).page()
    assert "| mnn | 4 | 1 | 2 | 1 | 0 | 0 | 0 | 1 | 30.0 | 20.0 |" in page
    assert "| qnn | 4 | 1 | 0 | 0 | 2 | 1 | 0 | 1 |  |  |" in page
    assert "| all | 8 | 2 | 2 | 1 | 2 | 1 | 0 | 2 | 30.0 | 20.0 |" in page
    assert "5 of 8 do: 62.50%" in page
    assert "3 more files" in page


def test_reasons_are_grouped() -> None:
    assert Summary(CELLS).reasons() == [
        ("N quantizers at '...' |", "give '...'", 2),
        ("model.onnx failed", "use the target's scheme", 1),
    ]
    assert r"| 2 | N quantizers at '...' \| | give '...' |" in Summary(CELLS).page()


@pytest.mark.parametrize(
    ("refused", "crashed", "reached"), [(3, 0, True), (4, 0, False), (0, 1, False)]
)
def test_the_goal(refused: int, crashed: int, reached: bool) -> None:
    cells = [Cell("f", "mnn", "kept")] * (100 - refused - crashed)
    cells += [Cell("f", "mnn", "refused", passed=False)] * refused
    cells += [Cell("f", "mnn", "crash", passed=False)] * crashed
    assert Summary(cells).reached == reached


def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = tmp_path / "A1" / "tool"
    fixture.mkdir(parents=True)
    (fixture / "model.onnx").touch()
    asked: list[str] = []

    def cell(_: object, backend: str, *, verify: bool) -> Cell:
        asked.append(backend)
        return Cell("A1/tool", backend, "kept", passed=verify)

    monkeypatch.setattr(recast_matrix, "opened", lambda _: object())
    monkeypatch.setattr(recast_matrix, "cell", cell)
    results = tmp_path / "deep" / "results.jsonl"
    results.parent.mkdir()
    done = Cell("A1/tool", "mnn", "recast", sqnr=12.5)
    line = json.dumps(asdict(done))
    results.write_text(f"{line}\n{line[:20]}")  # the second was cut off
    given = ["--folder", str(tmp_path), "--results", str(results)]
    given += ["--backend", "mnn", "--backend", "qnn"]
    assert main([*given, "--resume"]) == 0
    assert asked == ["qnn"]
    assert stored(results) == [done, Cell("A1/tool", "qnn", "kept")]
    assert main(given) == 0
    assert asked == ["qnn", "mnn", "qnn"]
    assert len(stored(results)) == 2
