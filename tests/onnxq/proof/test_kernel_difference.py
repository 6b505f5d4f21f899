"""What rounding does not explain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxq.proof.kernel_difference import KernelDiff, RunningKernel

RANDOM = np.random.default_rng(0).uniform(0, 255, 10_000)


def difference(codes: np.ndarray, before: np.ndarray) -> KernelDiff:
    running = RunningKernel("t", "Conv", "conv", 0.05)
    for part in np.array_split(np.arange(codes.size), 3):
        running.add(codes[part], before[part])
    return running.result()


@pytest.mark.parametrize("shift", [0.0, 0.01, 0.3, 1.0, 7.0])
def test_the_deviation_is_what_was_added_before_rounding(shift: float) -> None:
    found = difference(np.rint(RANDOM + shift), RANDOM)
    assert found.deviation == pytest.approx(shift, abs=1e-3)
    assert found.moved == pytest.approx(min(1.0, shift), abs=0.02)
    assert found.passed is (shift < 0.05)
    assert found.count == RANDOM.size


def test_values_between_two_codes_may_become_either() -> None:
    found = difference(np.array([1.0, 2.0, 3.0]), np.array([1.5, 1.5 - 1e-7, 3.5 + 1e-7]))
    assert found.passed
    assert found.moved == 1, "each of them became the other"


def test_values_off_the_grid_are_no_codes() -> None:
    found = difference(np.rint(RANDOM / 1.02) * 1.02, RANDOM)
    assert found.deviation == pytest.approx(0.5, abs=0.01)


def test_nan_decides_nothing_and_another_shape_all() -> None:
    assert difference(np.zeros(3), np.full(3, np.nan)).deviation == 0
    running = RunningKernel("t", "", "the input 'x'", 0.05)
    running.add(np.zeros(3), np.zeros(4))
    assert running.result().deviation == math.inf
    assert running.result().to_json()["deviation"] is None
    assert not running.result().passed
