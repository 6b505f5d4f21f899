"""Ranges of weights: extremes with 8 bits, least error with fewer, per channel or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxq.arrays import pieces
from onnxq.calibration.weight_ranges import block_range, weight_range
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


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("method", [None, "min-max"])
def test_blocks_have_their_own_ranges(axis: int, method: str | None) -> None:
    """Each as if it were a channel; the last one is shorter."""
    values = np.random.default_rng(2).normal(size=(10, 6)).astype(np.float32)
    spec = replace(INT4, blocks=True, block=4)
    low, high, text = block_range(values, axis, spec, method)
    blocks = np.split(values, range(4, values.shape[axis], 4), axis=axis)
    assert low.shape == high.shape == ((3, 6) if axis == 0 else (10, 2))
    assert text.endswith("of each block's values")
    for at, block in enumerate(blocks):
        wanted = weight_range(block, 1 - axis, spec, method)
        assert np.array_equal(np.minimum(low.take(at, axis), 0), np.minimum(wanted[0], 0))
        assert np.array_equal(np.maximum(high.take(at, axis), 0), np.maximum(wanted[1], 0))


def test_an_unknown_method_is_an_error() -> None:
    with pytest.raises(OptionError, match="no method 'msee'") as error_:
        weight_range(VALUES, 0, INT8, "msee")
    assert "mse" in error_.value.fix


@pytest.mark.parametrize("method", ["min-max", "mse"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_slices_of_a_large_weight_have_the_ranges_of_the_whole(
    axis: int | None, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(0).standard_normal((60, 70)).astype(np.float32)

    def found() -> list[np.ndarray]:
        made = [*weight_range(values, axis, INT4, method)[:2]]
        if axis is not None:
            made += block_range(values, axis, replace(INT4, block=32), method)[:2]
        return made

    whole = found()
    monkeypatch.setattr(pieces, "ROWS", 500)
    for sliced, wanted in zip(found(), whole, strict=True):
        np.testing.assert_array_equal(sliced, wanted)
