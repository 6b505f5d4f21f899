"""A model while it is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxq.errors import VerifyError
from tests.onnxq.timing.fake_child import contender

RELU = "g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }"


def test_it_takes_inputs_and_turns(tmp_path: Path) -> None:
    one = contender("m", RELU, tmp_path)
    one.take([{"x": np.ones((2, 3), np.float32)}])
    assert one.taken == ("x float32[2, 3]",)
    assert len(one.turn(0, 3)) == 3


def test_a_death_is_remembered_and_other_errors_are_raised(tmp_path: Path) -> None:
    one = contender("m", RELU, tmp_path, dies_in="take")
    with one.dying():
        one.take([{"x": np.ones((2, 3), np.float32)}])
    assert one.failure == "SIGABRT in take"
    assert one.taken == ()
    with pytest.raises(VerifyError), one.dying():
        raise VerifyError("wrong", fix="none")
