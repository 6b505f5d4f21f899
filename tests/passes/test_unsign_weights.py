"""Weights in uint8 where pairs of products could saturate, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.analysis.accumulator_bounds import bounds
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from onnxq.quant.qparams import Role
from passes.unsign_weights import UnsignWeights
from tests.models.build import apply, bit_equal, parse, quantize, reasons, run, tensor, weight


def layer(code: int, **fields: object) -> Model:
    model = parse(
        "g (float[N,4] x) => (float[N,2] y) <float[4,2] w = {0, 0, 0, 0, 0, 0, 0, 0}> "
        "{ y = MatMul(x, w) }"
    )
    tensor(model, "w").values = np.full((4, 2), code * 0.1, np.float32)
    quantize(model, "x", qtype="uint8", zero_point=7)
    return weight(model, "w", **{"scale": np.float32([0.1, 0.1]), "axis": 1, **fields})


def stored(model: Model) -> object:
    return next(p for n in model.nodes(FAKE_QUANTIZE) if (p := params_of(n)).role is Role.WEIGHT)


def test_other_codes_the_same_values() -> None:
    model = layer(127, lo=-127)
    made, trace = apply(model, UnsignWeights())
    params = stored(made)
    assert (str(params.qtype), params.lo, params.hi) == ("uint8", 1, 255)
    assert set(params.zero_point) == {128}
    assert "64770" in trace.rewrites[0]
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    assert bit_equal(run(made, x), run(model, x))
    assert all(found.fits_pairs for found in bounds(made))


@pytest.mark.parametrize("code", [64, -64, 3])
def test_what_cannot_saturate_stays(code: int) -> None:
    made, trace = apply(layer(code), UnsignWeights())
    assert str(stored(made).qtype) == "int8"
    assert "no two products" in reasons(trace)


def test_unsigned_and_float_layers_stay() -> None:
    _, trace = apply(layer(100, qtype="uint8", zero_point=20), UnsignWeights())
    assert trace.rewrites == []
    model = parse("g (float[N,1] x) => (float[N,1] y) <float[1,1] w = {3}> { y = MatMul(x, w) }")
    assert apply(weight(model, "w"), UnsignWeights())[1].rewrites == []
