"""What tests of several modules of `onnxq` share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnxq import cli

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def onnxq(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; exit code, standard output, standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(w) for w in words])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run
