"""Processes that signals end, and those that fail by themselves."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.consumers.compare import Measurement, tell_lowered
from tests.consumers.lowered import LEVELS, VARIABLE, ConsumerFailed, run_lowered

FAKE = """
import os, signal, sys
runs_at, log = sys.argv[1:]
order = ["", "AVX512_CORE_BF16", "AVX2", "nothing"]
level = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
with open(log, "a") as file:
    file.write(f"[{level}]")
if runs_at == "raises":
    sys.exit("a wrong file")
if order.index(level) < order.index(runs_at):
    os.kill(os.getpid(), signal.SIGILL)
"""
"""A consumer that SIGILL ends unless its instructions are few enough."""


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def fake(runs_at: str, folder: Path) -> tuple[list[str], Path]:
    script, log = folder / "fake.py", folder / "log"
    script.write_text(FAKE, encoding="utf-8")
    return [sys.executable, "-S", str(script), runs_at, str(log)], log


@pytest.mark.parametrize(
    ("runs_at", "tried"),
    [
        ("", "[]"),
        ("AVX512_CORE_BF16", "[][AVX512_CORE_BF16]"),
        ("AVX2", "[][AVX512_CORE_BF16][AVX2]"),
    ],
)
def test_a_signal_lowers_the_instructions_until_it_runs(
    runs_at: str, tried: str, tmp_path: Path
) -> None:
    command, log = fake(runs_at, tmp_path)
    assert run_lowered(command) == runs_at
    assert log.read_text(encoding="utf-8") == tried


def test_a_level_that_is_set_is_never_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "AVX2")
    command, log = fake("nothing", tmp_path)
    with pytest.raises(ConsumerFailed, match="SIGILL"):
        run_lowered(command)
    assert log.read_text(encoding="utf-8") == "[AVX2]"


def test_a_signal_at_every_level_is_a_failure(tmp_path: Path) -> None:
    command, log = fake("nothing", tmp_path)
    with pytest.raises(ConsumerFailed, match="SIGILL") as failed:
        run_lowered(command)
    assert str(failed.value).count("ended by SIGILL") == 1 + len(LEVELS)
    assert log.read_text(encoding="utf-8") == "[]" + "".join(f"[{level}]" for level in LEVELS)


def test_an_exception_is_a_failure_at_once(tmp_path: Path) -> None:
    command, log = fake("raises", tmp_path)
    with pytest.raises(ConsumerFailed, match=r"exit 1\n\na wrong file"):
        run_lowered(command)
    assert log.read_text(encoding="utf-8") == "[]"


def test_the_run_names_what_was_lowered() -> None:
    """A consumer that had to be lowered has a row in the table; another has none."""
    rows: list[dict[str, object]] = []

    def table_row(table: str, /, **columns: object) -> None:
        rows.append(columns)

    plain = Measurement("openvino", "1.0", "openvino", None, "resnet", "float")
    tell_lowered(plain, table_row)
    assert rows == []
    tell_lowered(replace(plain, lowered="AVX2"), table_row)
    assert rows == [{"runtime": "openvino 1.0", "network": "resnet", VARIABLE: "AVX2"}]
    assert json.loads(json.dumps(replace(plain, lowered="AVX2").to_json()))["lowered"] == "AVX2"
