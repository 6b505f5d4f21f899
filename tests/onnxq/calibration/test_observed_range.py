"""Ranges of observed tensors, and masks before a Softmax."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.calibration.observed_range import FADES, observed_range
from onnxq.observing.range_methods import Method
from onnxq.observing.tensor_statistics import TensorStatistics, Wanted
from onnxq.quant.scheme import QSpec

SPEC = QSpec(("uint8",))


def seen(values: object, rows: int | None = None) -> TensorStatistics:
    stats = TensorStatistics(Wanted(rows=rows))
    stats.add(np.asarray(values, np.float32))
    return stats


def test_the_extremes_with_zero() -> None:
    found = observed_range(seen([1.0, 3.0]), SPEC, Method.parse("min-max"))
    assert (found.low, found.high) == (0.0, 3.0)
    assert found.source == "min-max over 1 samples"


@pytest.mark.parametrize(("rows", "low"), [(None, -1e4), (-1, 2.0 - FADES)])
def test_what_a_softmax_ignores_is_left_out(rows: int | None, low: float) -> None:
    masked = [[3.0, 1.0, -1e4], [2.0, -1e4, -1e4]]
    found = observed_range(seen(masked, rows), SPEC, Method.parse("min-max"))
    assert (found.low, found.high) == (low, 3.0)
    assert ("Softmax" in found.source) == (rows is not None)
