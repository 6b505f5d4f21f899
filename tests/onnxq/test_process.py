"""The process of the command line; what real processes do is in tests/hostile/test_manners.py."""

from __future__ import annotations

import io
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from onnxq import process
from tests.onnxq.conftest import Run


@pytest.mark.parametrize(
    ("argv", "original", "expected"),
    [
        (["/usr/bin/onnxq", "inspect"], ["python", "/usr/bin/onnxq", "inspect"], True),
        (["-m", "inspect"], ["python", "-m", "onnxq", "inspect"], True),
        (["-m"], ["python", "-W", "error", "-m", "onnxq.cli"], True),
        (["-m"], ["python", "-m", "pytest"], False),
        (["/usr/bin/pytest", "-m", "onnxq"], ["python", "/usr/bin/pytest", "-m", "onnxq"], False),
        (["-c"], ["python", "-c", "import onnxq"], False),
        ([""], ["python"], False),
        ([], [], False),
    ],
)
def test_who_is_the_command_line(
    argv: list[str], original: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", original)
    assert process._is_command_line() is expected


def test_a_program_that_calls_main_keeps_its_ways(onnxq: Run) -> None:
    def ways() -> list[object]:
        signals = (signal.SIGINT, signal.SIGPIPE, signal.SIGALRM)
        return [*map(signal.getsignal, signals), sys.unraisablehook, sys.stdout, sys.stderr]

    before = ways()
    assert not process.IS_COMMAND_LINE
    assert onnxq("--version")[0] == 0
    assert onnxq("nope")[0] == 2
    assert ways() == before


class Full(io.StringIO):
    """A stream without room."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_device_is_one_error(onnxq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    code, _, err = onnxq("passes", "--json")
    assert code == 2
    assert err.splitlines() == [
        "error: cannot write to standard output (No space left on device)",
        "  next: free some disk space, or send the output elsewhere",
    ]


def test_errors_that_nobody_can_read_have_their_exit_code(
    onnxq: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    assert onnxq("inspect", "nothing.onnx")[:2] == (2, "")


def test_an_interrupt_is_one_whatever_becomes_of_it(
    onnxq: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries in C turn a KeyboardInterrupt into an ImportError."""

    def interrupted() -> None:
        with pytest.raises(KeyboardInterrupt):
            process._interrupt()
        raise ImportError("half of a library")

    monkeypatch.setattr("onnxq.discovery.passes", interrupted)
    monkeypatch.setattr(process, "_interrupted", False)
    assert onnxq("passes") == (130, "", "")


def test_an_interrupt_that_got_lost_comes_again() -> None:
    def heard(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, heard)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            process._again(SimpleNamespace(exc_type=KeyboardInterrupt))
            time.sleep(10)
    finally:
        signal.signal(signal.SIGALRM, before)
