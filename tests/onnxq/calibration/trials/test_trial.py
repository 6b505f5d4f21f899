"""Noise at the outputs against its definition in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxq.arrays import pieces
from onnxq.backend import find_backend
from onnxq.calibration.trials.trial import Noise, Trial, decibels, with_rounded_weights
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.running.sessions import reference
from tests.models.build import parse, quantize
from tests.models.networks import quantized, samples

TWO = """g (float[4] x) => (float[4] y, float[4] z, int64[1] k) {
    y = Neg(x)
    z = Mul(x, x)
    k = ArgMax<axis=0>(x)
}"""


def test_the_repr_is_short_whatever_the_samples() -> None:
    noise = Noise()
    for _ in range(100):
        noise.add({"y": np.ones(4)}, [np.full(4, 1.1)])
    assert repr(noise) == "<Noise: 20.0 dB at 1 output>"


def test_the_definition() -> None:
    rng = np.random.default_rng(0)
    y, z = rng.normal(size=100), 100 * rng.normal(size=100)
    noise = Noise()
    noise.add({"y": y, "z": z, "k": np.arange(3)}, [y + 0.1, z * 1.01, np.arange(3)])
    shares = [np.sum(np.full(100, 0.1) ** 2) / np.sum(y**2), 1e-4]
    assert noise.sqnr == pytest.approx(-10 * math.log10(sum(shares) / 2))
    assert noise.shares == pytest.approx({"y": shares[0], "z": shares[1]})


def test_labels_are_counted() -> None:
    noise = Noise()
    noise.add({"k": np.array([1, 2, 3, 4])}, [np.array([1, 2, 0, 4])])
    noise.add({"k": np.array([1, 2, 3, 4])}, [np.array([1, 2])])  # another shape: all differ
    assert noise.changed_share("k") == pytest.approx(5 / 8)
    assert noise.shares == {}


def test_limits() -> None:
    assert decibels(0.0) == math.inf
    assert math.isnan(decibels(math.nan))
    empty = Noise()
    assert (empty.share, empty.sqnr) == (0.0, math.inf)
    assert empty.to_json() == {"sqnr": None, "outputs": {}}
    zero = Noise()
    zero.add({"y": np.zeros(3)}, [np.full(3, 0.5)])  # an output that is always 0
    assert zero.share == pytest.approx(0.75)


def test_an_output_of_another_shape_is_all_noise() -> None:
    """A loop that decides when it ends may run less often: nothing of its output can be trusted."""
    noise = Noise()
    noise.add({"y": np.ones((1, 5))}, [np.ones((1, 3))])
    assert noise.sqnr == 0.0
    noise.add({"y": np.ones((1, 5))}, [np.ones((1, 5))])
    assert noise.share == pytest.approx(0.5)
    nothing = Noise()
    nothing.add({"y": np.zeros(2)}, [np.zeros(3)])
    assert nothing.share == 1.0


@pytest.mark.parametrize("piece", [pieces.PIECE, 16])
@pytest.mark.parametrize("name", ["resnet", "transformer"])
def test_weights_rounded_once_are_those_of_the_quantizers(
    name: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE", piece)
    source = quantized(name, find_backend("tensorrt"))
    made = with_rounded_weights(source)
    assert len(made.nodes(*QUANTIZERS)) < len(source.nodes(*QUANTIZERS))
    (feed,) = samples(name, 1)
    kept = {t.name: t.values for n in made.nodes() for t in n.inputs if t.name.endswith(".rounded")}
    names = [name.removesuffix(".rounded") for name in kept]
    values = reference(source, taps=names).run(feed)
    for tensor, rounded in zip(names, kept.values(), strict=True):
        np.testing.assert_array_equal(rounded, values[tensor])
    # Products with a constant may be summed in another order.
    np.testing.assert_allclose(reference(made).run(feed)["y"], values["y"], rtol=1e-4, atol=1e-5)


def test_a_model_without_noise_and_one_with() -> None:
    feeds = [{"x": np.random.default_rng(i).normal(size=4).astype(np.float32)} for i in range(20)]
    trial = Trial(parse(TWO), feeds)
    assert len(trial.results) == 8
    assert trial.noise(parse(TWO)).sqnr == math.inf
    rounded = quantize(parse(TWO), "x", scale=np.float32(0.05))
    found = trial.noise(rounded)
    assert 25 < found.sqnr < 60
    assert set(found.shares) == {"y", "z"}  # labels do not count
    assert len(trial.fewer(3).results) == 3
    assert len(trial.results) == 8


def test_chance_covers_the_noise_of_equally_good_models() -> None:
    """Of pairs of normal errors with the same variance, about one in twenty differs by more."""
    rng = np.random.default_rng(0)
    for count in (24, 1000):
        noise = Noise()
        noise.add({"y": np.ones(count)}, [np.ones(count)])
        squares = np.square(rng.normal(size=(2, 2000, count))).mean(axis=2)
        beyond = np.mean(np.abs(np.log(squares[0] / squares[1])) > math.log(noise.chance))
        assert 0.02 < beyond < 0.08
