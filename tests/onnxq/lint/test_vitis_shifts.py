"""Shifts of the DPU."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.models.lint_cases import found
from tests.models.zoo_build import Build

INT8 = TensorProto.INT8


def net(x: int, w: int, out: int, bias: int | None = None) -> onnx.ModelProto:
    """A convolution with Relu whose scales are 2^-x, 2^-w, 2^-out and 2^-bias."""
    b = Build(17, seed=2)
    source = b.qdq(b.input("x", [1, 4, 6, 6]), 2.0**-x, 0, INT8)
    weight = b.qdq(b.init(b.random(3, 4, 3, 3)), 2.0**-w, 0, INT8)
    values = b.init(np.full(3, 0.25, np.float32))
    added = values if bias is None else b.qdq(values, 2.0**-bias, 0, INT8)
    y = b.op("Relu", b.op("Conv", source, weight, added, out="features"))
    return b.model(b.qdq(y, 2.0**-out, 0, INT8))


def messages(*fix_points: int | None) -> list[str]:
    made = found(net(*fix_points), "vitis-shifts", "vitis")  # type: ignore[arg-type]
    return [f"{f.severity}: {f.message}" for f in made]


@pytest.mark.parametrize("fix_points", [(4, 7, 4, 6), (4, 7, 11, 11), (8, 12, 4, 5)])
def test_shifts_within_the_limits(fix_points: tuple[int, ...]) -> None:
    assert messages(*fix_points) == []


def test_sums_that_would_be_shifted_up() -> None:
    (message,) = messages(2, 3, 6, 5)
    assert message.startswith("error: sums are shifted by -1 bits, not 0..16")


def test_sums_that_would_be_shifted_too_far() -> None:
    (message,) = messages(10, 10, 3, 10)
    assert "sums are shifted by 17 bits" in message


def test_biases_out_of_reach() -> None:
    (message,) = messages(10, 10, 6, 4)
    assert "its bias is shifted by 16 bits, not -2..15" in message
    (message,) = messages(4, 4, 4, 21)
    assert "its bias is shifted by -13 bits, not -12..15" in message


def test_a_float_bias_is_a_warning() -> None:
    (message,) = messages(4, 7, 4)
    assert message.startswith("warning: its bias is float")
