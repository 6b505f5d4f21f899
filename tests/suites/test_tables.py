"""Rows reach the end of the output: in one process, from workers, from a test that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.parametrize("number", [10, 9, 8])
def test_square(number, table_row):
    table_row("squares", number=number, square=number**2)
    assert number != 9

def test_two_rows(table_row):
    table_row("capitals", country="Peru", city="Lima")
    table_row("capitals", country="Ghana", city="Accra", language="English")

def test_none():
    pass
"""
CONFTEST = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [["-p", "no:xdist"], ["-n", "2"]], ids=["alone", "workers"])
def test_tables_are_printed_after_the_run(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_rows.py").write_text(TESTS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir=.", *arguments],
        cwd=tmp_path,
        # Not the variables of a worker that this test may run in.
        env={k: v for k, v in os.environ.items() if "PYTEST" not in k} | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert "1 failed, 4 passed" in lines[-1], done.stdout + done.stderr
    squares = next(i for i, line in enumerate(lines) if line.strip("= ") == "squares")
    assert lines[squares + 1 : squares + 5] == [
        "number  square",
        "10      100",
        "8       64",
        "9       81",
    ]
    capitals = next(i for i, line in enumerate(lines) if line.strip("= ") == "capitals")
    assert lines[capitals + 1 : capitals + 4] == [
        "country  city   language",
        "Peru     Lima",
        "Ghana    Accra  English",
    ]
