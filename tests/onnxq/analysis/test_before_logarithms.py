"""Spectra are found from their logarithm backwards."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.analysis.before_logarithms import before_logarithms
from onnxq.errors import LoadError
from onnxq.workflows.quantize import quantize
from tests.models.build import parse, run

SPECTRUM = """g (float[1,1,64] x) => (float[1,4,57] y)
    <float[4,1,8] re, float[4,1,8] im, float[4,4,1] w, float low = {1e-6}> {
        a = Conv(x, re)
        b = Conv(x, im)
        aa = Mul(a, a)
        bb = Mul(b, b)
        p = Add(aa, bb)
        q = Max(p, low)
        l = Log(q)
        y = Conv(l, w)
    }"""


def outputs(text: str) -> set[str]:
    return {t.name for node in before_logarithms(parse(text)) for t in node.outputs}


def filled(**weights: np.ndarray) -> str:
    """The text with these weights."""
    text = SPECTRUM
    for name, value in weights.items():
        numbers = ",".join(f"{v:.6f}" for v in value.ravel())
        text = text.replace(f" {name},", f" {name} = {{{numbers}}},")
    return text


def test_a_spectrum() -> None:
    text = filled(re=np.ones(32), im=np.ones(32), w=np.ones(16))
    assert outputs(text) == {"a", "b", "aa", "bb", "p", "q"}


def test_activations_and_other_readers_end_the_walk() -> None:
    relu = "g (float[4] x) => (float[4] y) { a = Mul(x, x) b = Relu(a) c = Add(b, b) y = Log(c) }"
    assert outputs(relu) == {"c"}
    shared = """g (float[4] x) => (float[4] y, float[4] z) {
        a = Mul(x, x) b = Add(a, a) y = Log(b) z = Sigmoid(a) }"""
    assert outputs(shared) == {"b"}
    shown = "g (float[4] x) => (float[4] y, float[4] a) { a = Mul(x, x) y = Log(a) }"
    assert outputs(shown) == set()


def test_octaves_put_together_and_those_who_ask_for_their_size() -> None:
    """A transform with a resolution for each octave pads, joins and negates parts; others read
    how many there are, which says nothing about values."""
    text = """g (float[2,4] x) => (float[4,6] y, int64[2] n)
        <int64[4] more = {0, 1, 0, 1}> {
        low = Mul(x, x)
        high = Neg(low)
        both = Concat<axis = 0>(low, high)
        wide = Pad(both, more)
        n = Shape(wide)
        power = Mul(wide, wide)
        y = Log(power)
    }"""
    assert outputs(text) == {"low", "high", "both", "wide", "power"}


def test_quiet_parts_of_a_spectrum_survive_quantization() -> None:
    time, bins = np.arange(8), np.arange(4)[:, None, None]
    rng = np.random.default_rng(0)
    angles = 2 * np.pi * bins * time / 8
    model = parse(filled(re=np.cos(angles), im=np.sin(angles), w=rng.normal(size=(4, 4, 1))))
    feeds = [  # loud and quiet sounds, 60 dB apart
        {"x": (10.0 ** -(i % 4) * rng.normal(size=(1, 1, 64))).astype(np.float32)} for i in range(8)
    ]
    made = quantize(model, "onnxruntime", feeds)
    assert made.noise is not None
    assert made.noise.sqnr > 30
    assert any("logarithm" in note for note in made.notes)
    quiet = feeds[3]["x"]
    (y,), (z,) = run(model, quiet), run(made.model, quiet)
    assert np.abs(y - z).max() < 0.05 * np.abs(y).max()


def test_a_spectrum_alone_is_refused_unless_a_rule_names_its_layers() -> None:
    text = filled(re=np.ones(32), im=np.ones(32), w=np.ones(16))
    model = parse(text.replace("l = Log(q)", "y = Log(q)").replace("y = Conv(l, w)", ""))
    feeds = [{"x": np.random.default_rng(0).normal(size=(1, 1, 64)).astype(np.float32)}]
    with pytest.raises(LoadError, match=r"Conv.* and all other layers.*logarithm"):
        quantize(model, "onnxruntime", feeds)
    made = quantize(model, "onnxruntime", feeds, settings=[["Conv", {"weight_bits": 8}]])
    assert made.range_sources
