"""What tests of several modules of `onnxq` share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onnxq import cli
from passes import to_qdq

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


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the writer of QDQ wrong, from the call on."""
    right = to_qdq._constants

    def wrong(*arguments: object) -> object:
        scale, zero_point = right(*arguments)  # type: ignore[arg-type]
        scale.values = np.asarray(scale.values * np.float32(1.2))
        return scale, zero_point

    return lambda: monkeypatch.setattr(to_qdq, "_constants", wrong)
