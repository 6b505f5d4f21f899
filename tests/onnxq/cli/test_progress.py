"""What is being done: shown on a terminal after a while, and nowhere else."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxq.cli import progress
from onnxq.cli.progress import progress_line
from onnxq.graph import save
from onnxq.views.screen import Screen
from onnxq.workflows import demo
from onnxq.workflows.calibrate import calibrate
from tests.onnxq.conftest import Run


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class ByHand:
    """A timer that fires when it is told to."""

    latest: ByHand
    at_once = False

    def __init__(self, delay: float, action: Callable[[], None]) -> None:
        assert delay == progress.DELAY == 2.0
        self.fire = action
        self.cancelled = False
        ByHand.latest = self

    def start(self) -> None:
        if ByHand.at_once:
            self.fire()

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error as a terminal, and time in the hands of the test."""
    stream = Terminal()
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress.screen, "console", _console(stream))
    monkeypatch.setattr(progress, "Timer", ByHand)
    monkeypatch.setattr(ByHand, "at_once", False)
    return stream


def _console(stream: Terminal) -> Callable[..., Screen]:
    real = progress.screen.console
    return lambda stderr=False: Screen(file=stream, width=100) if stderr else real()


def test_short_work_is_quiet(terminal: Terminal) -> None:
    with progress_line(quiet=False) as tell:
        tell("reading")
        tell("writing")
    assert terminal.getvalue() == ""
    assert ByHand.latest.cancelled
    ByHand.latest.fire()  # too late: the command is over
    assert terminal.getvalue() == ""


def test_long_work_shows_what_is_done_and_wipes_it_out(terminal: Terminal) -> None:
    with progress_line(quiet=False) as tell:
        tell("reading [red]'a'")
        ByHand.latest.fire()
    assert "reading [red]'a'" in terminal.getvalue()
    assert "\x1b[2K" in terminal.getvalue().rpartition("'a'")[2]  # the line is erased


def test_it_ends_with_an_error_too(terminal: Terminal) -> None:
    with pytest.raises(ValueError, match="wrong"), progress_line(quiet=False):
        raise ValueError("wrong")
    assert ByHand.latest.cancelled


def test_a_forced_colour_does_not_make_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(progress, "Timer", ByHand)
    monkeypatch.setattr(ByHand, "at_once", True)
    with progress_line(quiet=False) as tell:
        tell("reading")
    assert capsys.readouterr() == ("", "")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    save(demo.build(), folder / "f.onnx")
    save(demo.quantize(demo.build()), folder / "q.onnx")
    images = np.random.default_rng(0).normal(size=(4, 3, 32, 32)).astype(np.float32)
    np.savez(folder / "data.npz", image=images)
    calibrate(demo.build(), folder / "data.npz", backend="tensorrt").save(folder / "part")
    return folder


COMMANDS = {
    "convert": ("q.onnx -b tensorrt -o out --samples 1", "reading"),
    "run": ("q.onnx -p to-qdq -o out.onnx", "reading"),
    "verify": ("q.onnx q.onnx --samples 1", "opening both models"),
    "inspect": ("q.onnx", "reading"),
    "explain": ("q.onnx image", "reading"),
    "lint": ("q.onnx -b tensorrt", "checking"),
    "encodings": ("q.onnx -f onnxq -o side --samples 1", "reading"),
    "quantize": ("f.onnx -b tensorrt --data data.npz -o quant --method min-max", "reading"),
    "calibrate": ("f.onnx -b tensorrt --data data.npz -o statistics", "reading"),
    "calibrate merge": ("part -o whole", "merging part 1 of 1"),
    "report": ("q.onnx -o page.html --samples 1", "reading"),
    "bench": ("q.onnx --seconds 0.01", ""),
}
"""Every command that may take long, and the first thing that it tells."""


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_tell_what_they_do(
    onnxq: Run,
    terminal: Terminal,
    desk: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.chdir(desk)
    told: list[str] = []
    monkeypatch.setattr(progress._Line, "tell", lambda self, text: told.append(text))
    words, first = COMMANDS[command]
    every = (*command.split(), *words.split())
    code, _, err = onnxq(*every)
    assert (code, err) == (0, "")
    assert told[0].startswith(first)
    assert terminal.getvalue() == ""  # nothing took long
    told.clear()
    assert onnxq(*every, "--json")[0] == 0
    assert told == []
