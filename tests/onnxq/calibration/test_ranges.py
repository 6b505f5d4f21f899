"""Ranges with where they come from."""

from __future__ import annotations

import numpy as np

from onnxq.calibration.ranges import KnownRange, united


def test_numbers_become_float64() -> None:
    made = KnownRange.of(-1, np.array([2.0, 3.0], np.float32), "its own values")
    assert made.low.dtype == made.high.dtype == np.float64
    assert made.high.tolist() == [2.0, 3.0]


def test_one_range_stays_itself() -> None:
    made = KnownRange.of([-1.0, -2.0], [3.0, 4.0], "a")
    assert united([made]) is made


def test_the_union_covers_all_and_names_each_source_once() -> None:
    parts = [
        KnownRange.of(-1, 2, "mse"),
        KnownRange.of(-5, 0, "a quantizer"),
        KnownRange.of([0, -3], [1, 9], "mse"),
    ]
    whole = united(parts)
    assert (float(whole.low), float(whole.high)) == (-5.0, 9.0)
    assert whole.source == "mse; a quantizer"
