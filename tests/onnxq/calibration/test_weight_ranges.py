"""Ranges of weights: extremes with 8 bits, least error with fewer, per channel or not."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.calibration.weight_ranges import weight_range
from onnxq.errors import OptionError
from onnxq.quant.grid_of_range import grid_numbers
from onnxq.quant.scheme import QSpec

INT8 = QSpec(("int8",), symmetric=True, lo=-127)
INT4 = QSpec(("int4",), symmetric=True, lo=-7)
VALUES = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
VALUES[1] *= 100
VALUES[2] = 0


def error(rows: np.ndarray, low: np.ndarray, high: np.ndarray, spec: QSpec) -> np.ndarray:
    scale, zero = (each[:, None] for each in grid_numbers(low, high, spec))
    codes = np.clip(np.rint(rows / scale) + zero, *spec.range)
    return (((codes - zero) * scale - rows.astype(np.float64)) ** 2).sum(axis=1)


def test_extremes_with_8_bits() -> None:
    low, high, text = weight_range(VALUES, 0, INT8)
    assert np.array_equal(low, VALUES.min(axis=(1, 2)))
    assert np.array_equal(high, VALUES.max(axis=(1, 2)))
    assert text == "extremes of each channel's values"
    low, high, text = weight_range(VALUES, None, INT8)
    assert (low.shape, float(low), float(high)) == ((), VALUES.min(), VALUES.max())
    assert text == "extremes of its values"


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_least_error_with_4_bits(axis: int) -> None:
    rows = np.moveaxis(VALUES, axis, 0).reshape(VALUES.shape[axis], -1)
    low, high, text = weight_range(VALUES, axis, INT4)
    assert text.startswith("least squared error")
    found = error(rows, low, high, INT4)
    extremes = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
    best = np.min(
        [error(rows, extremes[0] * s, extremes[1] * s, INT4) for s in np.linspace(0.3, 1, 57)],
        axis=0,
    )
    assert np.all(found <= error(rows, *extremes, INT4))
    # The search tries half as many shares.
    assert np.all(found <= 1.1 * best + 1e-12)


def test_a_stated_method_decides() -> None:
    low, _, text = weight_range(VALUES, 0, INT4, "min-max")
    assert np.array_equal(low, VALUES.min(axis=(1, 2)))
    assert text.startswith("extremes")
    assert weight_range(VALUES, 0, INT8, "mse")[2].startswith("least squared error")


def test_an_unknown_method_is_an_error() -> None:
    with pytest.raises(OptionError, match="no method 'msee'") as error_:
        weight_range(VALUES, 0, INT8, "msee")
    assert "mse" in error_.value.fix
