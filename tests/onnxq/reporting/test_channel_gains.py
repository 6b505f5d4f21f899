"""Tensors that differ from their twins by a factor per channel."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.reporting.channel_gains import ChannelGains

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 8, 5, 5)).astype(np.float32)
NOISE = 0.01 * RANDOM.normal(size=X.shape).astype(np.float32)
FACTORS = np.linspace(0.3, 4, 8, dtype=np.float32).reshape(1, 8, 1, 1)


def gains(a: np.ndarray, b: np.ndarray) -> float | None:
    found = ChannelGains()
    for one, other in zip(a, b, strict=True):  # sample by sample
        found.add(one[None], other[None])
    return found.sqnr


def test_factors_do_not_count_as_error() -> None:
    assert gains(X, X * FACTORS + NOISE) == pytest.approx(
        10 * np.log10(np.square(X * FACTORS).mean() / np.square(NOISE).mean()), abs=0.5
    )


def test_factors_along_the_last_axis() -> None:
    a, b = (np.moveaxis(each, 1, -1) for each in (X, X * FACTORS))
    found = gains(a, b)
    assert found is not None
    assert found > 60


def test_rounding_is_no_factor() -> None:
    assert gains(X, X) is None
    assert gains(X, X + NOISE) is None


def test_an_error_is_no_factor() -> None:
    assert gains(X, X + 0.5 * RANDOM.normal(size=X.shape).astype(np.float32)) is None
    assert gains(X, RANDOM.normal(size=X.shape).astype(np.float32)) is None


def test_tensors_without_channels() -> None:
    assert gains(X.reshape(2, -1)[:, 0], X.reshape(2, -1)[:, 0]) is None
    found = ChannelGains()
    found.add(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32))
    found.add(np.zeros((2, 4), np.float32), np.zeros((2, 3), np.float32))
    assert found.sqnr is None
