"""Smoothing: the same function, less noise, and only where it pays."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.arrays import pieces
from onnxq.backend import find_backend
from onnxq.calibration.even_channels.smoothing import best_factors, smooth
from onnxq.graph import Model
from onnxq.observing.tensor_statistics import Channels
from tests.models.build import parse_filled, run

PLAIN = """g (float[8,6] x) => (float[8,5] y, float[8,3] z)
    { y = MatMul(x, w) z = Gemm<transB=1>(x, v) }"""
NORMED = """g (float[8,6] x) => (float[8,5] y)
    { n = LayerNormalization<axis=-1>(x, g1, b1) y = MatMul(n, w) }"""


SHAPES = {"w": (6, 5), "v": (3, 6), "g1": (6,), "b1": (6,)}


def filled(text: str) -> Model:
    used = {name: shape for name, shape in SHAPES.items() if f", {name}" in text}
    return parse_filled(text, **used)


def channels(reach: list[float], values: int = 10000) -> Channels:
    size = np.array(reach)
    return Channels(-size, size, np.zeros_like(size), (size / 3) ** 2, values)


OUTLIERS = channels([1, 1, 60, 1, 1, 1])


@pytest.mark.parametrize(("text", "name"), [(PLAIN, "x"), (NORMED, "n")])
def test_the_function_stays(text: str, name: str) -> None:
    model = filled(text)
    made = model.clone()
    (done,) = smooth(made, {name: OUTLIERS}, find_backend("onnxruntime"))
    assert done.tensor == name
    assert done.gain > 4 / 3
    assert np.argmax(done.factors) == 2
    x = np.random.default_rng(1).normal(size=(8, 6)).astype(np.float32)
    for was, now in zip(run(model, x), run(made, x), strict=True):
        np.testing.assert_allclose(now, was, rtol=2e-4, atol=2e-5)
    assert [n.op for n in made.nodes("Mul")] == ([] if text is NORMED else ["Mul"])


def test_even_channels_are_left() -> None:
    made = filled(PLAIN)
    assert smooth(made, {"x": channels([1, 1, 1.1, 0.9, 1, 1])}, find_backend("onnxruntime")) == []


def test_a_target_that_quantizes_products_gets_no_product() -> None:
    assert smooth(filled(PLAIN), {"x": OUTLIERS}, find_backend("tensorrt")) == []
    assert len(smooth(filled(NORMED), {"n": OUTLIERS}, find_backend("tensorrt"))) == 1


def test_given_exponents_are_used() -> None:
    made = filled(PLAIN)
    (done,) = smooth(made, {"x": OUTLIERS}, find_backend("onnxruntime"), {"x": 0.35})
    assert done.exponent == 0.35
    assert smooth(filled(PLAIN), {"x": OUTLIERS}, find_backend("onnxruntime"), {}) == []


def test_the_noise_estimate_matches_measured_noise() -> None:
    """The gain is that of rounding x / s and s W in float64, within a factor."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6, 40))
    x = rng.uniform(-1, 1, size=(4000, 6)) * OUTLIERS.high

    def noise(factors: np.ndarray, margin: float = 1.0) -> float:
        scaled, w = x / factors, weight * factors[:, None]
        dx, dw = 2 * margin * np.abs(scaled).max() / 255, np.abs(w).max(axis=0) / 127
        made = (np.rint(scaled / dx) * dx) @ (np.rint(w / dw) * dw)
        return float(np.square(made - x @ weight).sum())

    ends, squares = (x.min(axis=0), x.max(axis=0)), np.square(x).mean(axis=0)
    seen = Channels(*ends, x.mean(axis=0), squares, len(x))
    best = best_factors([weight], seen, find_backend("onnxruntime").scheme)
    measured = noise(np.ones(6)) / noise(best.factors.astype(np.float64), best.margin)
    assert 0.6 < best.gain / measured < 1.7


@pytest.mark.parametrize("count", [16, 64, 1024])
@pytest.mark.parametrize("tails", ["normal", "laplace"])
def test_a_margin_leaves_room_for_what_few_values_have_not_shown(count: int, tails: str) -> None:
    """Data that were not seen lose no more than without smoothing."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6, 40))
    x = getattr(rng, tails)(size=(count + 100000, 6)) * OUTLIERS.high
    known, fresh = x[:count], x[count:]
    seen = Channels(
        known.min(axis=0),
        known.max(axis=0),
        known.mean(axis=0),
        np.square(known).mean(axis=0),
        count,
    )
    best = best_factors([weight], seen, find_backend("onnxruntime").scheme)

    def noise(factors: np.ndarray, margin: float) -> float:
        low, high = ((margin * each / factors) for each in (seen.low, seen.high))
        step = (high.max() - low.min()) / 255
        w = weight * factors[:, None]
        dw = np.abs(w).max(axis=0) / 127
        made = np.rint(np.clip(fresh / factors, low.min(), high.max()) / step) * step
        return float(np.square(made @ (np.rint(w / dw) * dw) - fresh @ weight).sum())

    factors = best.factors.astype(np.float64)
    assert noise(factors, best.margin) < noise(np.ones(6), 1.0)
    if count < 100:
        assert best.margin >= 1.25
        assert noise(factors, best.margin) < 0.5 * noise(factors, 1.0)


def test_a_silent_channel_may_wake_up() -> None:
    """That none of a few values is large says little: the edge is not at the largest of them."""
    best = best_factors(
        [np.ones((6, 4), np.float32)],
        channels([1, 1, 1, 1, 1, 1e-3], 64),
        find_backend("onnxruntime").scheme,
    )
    edges = best.margin * (np.array([1, 1, 1, 1, 1, 1e-3]) / best.factors).max() * best.factors
    assert edges[-1] > 0.1


@pytest.mark.parametrize("turned", [(False,), (True,), (False, True), (True, True)])
def test_factors_of_large_weights_are_found_from_slices(
    turned: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    shapes = [(70, 60) if turn else (60, 70) for turn in turned]
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    weights = [weight.T if turn else weight for weight, turn in zip(weights, turned, strict=True)]
    seen = channels([*rng.uniform(0.1, 50, 60)])
    scheme = find_backend("onnxruntime").scheme
    whole = best_factors(weights, seen, scheme)
    monkeypatch.setattr(pieces, "ROWS", 500)
    sliced = best_factors(weights, seen, scheme)
    np.testing.assert_array_equal(sliced.factors, whole.factors)
    assert (sliced.exponent, sliced.gain, sliced.margin) == (
        whole.exponent,
        whole.gain,
        whole.margin,
    )
