"""Scales moved by one bit, so that they come back from their stored inverse."""

from __future__ import annotations

import numpy as np

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from passes.invertible_scales import InvertibleScales, _inverse
from tests.models.build import apply, bit_equal, parse, quantize, reasons, run

BODY = "g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }"
KEPT = np.float32(0.125)


def test_every_scale_comes_back_after_one_move() -> None:
    """All mantissas: the exponent changes nothing."""
    all_ = (np.arange(1 << 23, dtype=np.uint32) | np.uint32(120 << 23)).view(np.float32)
    stored = _inverse(all_)
    back = _inverse(stored)
    assert np.abs(back.view(np.int32) - all_.view(np.int32)).max() == 1
    assert 0.17 < (back != all_).mean() < 0.18
    np.testing.assert_array_equal(_inverse(back), stored)


def test_a_scale_that_comes_back_stays() -> None:
    assert _inverse(_inverse(KEPT)) == KEPT
    model = quantize(parse(BODY), "x", scale=KEPT)
    made, trace = apply(model, InvertibleScales())
    assert not trace.rewrites
    x = np.linspace(-3, 3, 4, dtype=np.float32)[None]
    assert bit_equal(run(made, x), run(model, x))


def test_the_others_move_by_one_bit() -> None:
    all_ = np.linspace(0.01, 0.02, 1000, dtype=np.float32)
    scale = all_[_inverse(_inverse(all_)) != all_][0]
    made, trace = apply(quantize(parse(BODY), "x", scale=scale), InvertibleScales())
    (node,) = made.nodes(FAKE_QUANTIZE)
    found = params_of(node).scale
    assert found == _inverse(_inverse(scale)) != scale
    assert "1 of 1 scales by one bit" in trace.rewrites[0]
    assert not apply(made, InvertibleScales())[1].rewrites


def test_a_scale_without_an_inverse_stays() -> None:
    model = quantize(parse(BODY), "x", scale=np.float32(1e-40))
    made, trace = apply(model, InvertibleScales())
    assert "beyond float32" in reasons(trace)
    assert params_of(made.nodes(FAKE_QUANTIZE)[0]).scale == np.float32(1e-40)
