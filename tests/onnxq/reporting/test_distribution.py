"""Histograms of few bins, and what they say about a grid, held to the values themselves."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.observing.bit_histogram import BitHistogram
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.reporting.distribution import BINS, Distribution, of_activation, of_weight

NORMAL = np.random.default_rng(0).normal(size=20000).astype(np.float32)


def grid(scale: object, kind: str = "int8", **fields: object) -> QParams:
    return QParams("x", qtype(kind), scale, 0, **fields)  # type: ignore[arg-type]


def seen(values: np.ndarray, row: QParams | None, **more: object) -> Distribution:
    histogram = BitHistogram()
    histogram.add(values)
    found = of_activation("x", histogram, row, **more)  # type: ignore[arg-type]
    assert found is not None
    return found


def sqnr(values: np.ndarray, row: QParams) -> float:
    error = values.astype(np.float64) - row.fake(values)
    return float(10 * np.log10(np.square(values.astype(np.float64)).sum() / np.square(error).sum()))


@pytest.mark.parametrize("scale", [0.05, 0.02, 0.01, 0.3])
def test_an_activation_on_its_grid(scale: float) -> None:
    row = grid(scale)
    found = seen(NORMAL, row)
    outside = (scale * -128.5 > NORMAL) | (scale * 127.5 < NORMAL)
    assert found.clipped == pytest.approx(outside.mean(), abs=5e-4)
    assert found.sqnr == pytest.approx(sqnr(NORMAL, row), abs=0.3)
    assert sum(found.shares) + sum(found.outside) == pytest.approx(1)
    assert len(found.shares) == BINS
    edges = np.linspace(*found.ends, BINS + 1)
    counted = np.histogram(NORMAL, edges)[0] / NORMAL.size
    np.testing.assert_allclose(found.shares, counted, atol=2e-3)


def test_a_narrow_range_loses_by_clipping() -> None:
    assert seen(NORMAL, grid(0.005)).clip_noise > 0.9
    assert seen(NORMAL, grid(0.05)).clip_noise == 0


def test_a_wide_range_is_hardly_used() -> None:
    assert seen(NORMAL, grid(1.0)).used < 0.05
    assert seen(NORMAL, grid(0.03)).used == pytest.approx(1, abs=0.05)


def test_outliers_stay_outside_the_drawing() -> None:
    values = np.append(NORMAL, np.float32(1000))
    found = seen(values, grid(0.05))
    assert found.extremes[1] == 1000
    assert found.ends[1] < 10
    assert found.outside[1] == pytest.approx(1 / values.size)


def test_what_the_network_clamps_is_no_loss() -> None:
    row = QParams("x", qtype("uint8"), 0.02, 0)
    bare = seen(NORMAL, row)
    clamped = seen(NORMAL, row, clamp=(0.0, np.inf))
    assert bare.clipped == pytest.approx(0.5, abs=0.02)
    assert clamped.clipped == 0
    assert clamped.extremes[0] == 0
    assert clamped.sqnr == pytest.approx(sqnr(np.maximum(NORMAL, 0), row), abs=0.3)
    assert sum(clamped.shares) == pytest.approx(1)


def test_a_constant_tensor() -> None:
    for value in (0.0, 3.0):
        found = seen(np.full(10, value, np.float32), None)
        assert found.ends[0] < value < found.ends[1]
        assert sum(found.shares) == pytest.approx(1)


def test_nothing_seen() -> None:
    assert of_activation("x", BitHistogram(), None) is None


def test_a_weight_is_drawn_over_its_codes() -> None:
    values = NORMAL[:6000].reshape(3, 2000) * np.array([[1], [10], [100]], np.float32)
    scales = np.abs(values).max(axis=1) / 127
    row = grid(scales, axis=0, lo=-127, role=Role.WEIGHT)
    found = of_weight("w", values, row)
    assert found is not None
    assert found.in_codes
    codes = row.quantize(values)
    edges = np.linspace(*found.ends, len(found.shares) + 1)
    np.testing.assert_allclose(found.shares, np.histogram(codes, edges)[0] / codes.size, atol=0.02)
    assert found.clipped == 0
    assert found.sqnr == pytest.approx(sqnr(values, row), abs=0.01)


def test_a_weight_of_few_bits_has_a_bin_for_each_code() -> None:
    row = grid(0.5, "int4", role=Role.WEIGHT)
    found = of_weight("w", NORMAL, row)
    assert found is not None
    assert len(found.shares) == 16
    assert found.ends == (-8.5, 7.5)


def test_a_float_weight_has_no_grid() -> None:
    found = of_weight("w", NORMAL, None)
    assert found is not None
    assert (found.in_codes, found.grid) == (False, None)
    assert "grid" not in found.to_json()


def test_weights_that_cannot_be_drawn() -> None:
    assert of_weight("w", np.zeros((0, 3), np.float32), None) is None
    assert of_weight("w", np.array([1, np.nan], np.float32), None) is None
