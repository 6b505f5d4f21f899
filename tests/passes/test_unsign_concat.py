"""What a Concat joins is uint8, with the values it had."""

from __future__ import annotations

import numpy as np

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from passes.unsign_concat import UnsignConcat
from tests.models.build import apply, bit_equal, parse, quantize, run

X = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)


def net() -> Model:
    return parse(
        """g (float[2,4] x) => (float[2,8] y, float[2,4] z) {
        a = Neg(x) b = Relu(x) t = Reshape(b, s) u = Exp(x) z = Tanh(u)
        y = Concat<axis=1>(a, t) }""".replace("{\n", "<int64[2] s = {2, 4}> {\n", 1)
    )


def kinds(model: Model) -> dict[str, tuple[str, int]]:
    found = [params_of(n) for n in model.nodes(FAKE_QUANTIZE)]
    return {p.tensor: (str(p.qtype), int(p.zero_point)) for p in found}


def test_inputs_of_a_concat_also_behind_what_moves_values() -> None:
    model = net()
    for name in ("a", "b", "u"):
        quantize(model, name, zero_point=-3, lo=-127)
    made, trace = apply(model, UnsignConcat())
    assert kinds(made) == {"a": ("uint8", 125), "b": ("uint8", 125), "u": ("int8", -3)}
    assert bit_equal(run(made, X), run(model, X))
    assert len(trace.rewrites) == 2
    assert apply(made, UnsignConcat())[1].rewrites == []


def test_unsigned_wide_and_constant_ones_stay() -> None:
    model = net()
    quantize(model, "a", qtype="uint8", zero_point=9)
    quantize(model, "b", qtype="int16")
    made, trace = apply(model, UnsignConcat())
    assert kinds(made) == {"a": ("uint8", 9), "b": ("int16", 0)}
    assert trace.rewrites == []
    fixed = parse(
        "g (float[1,1] x) => (float[1,2] y) <float[1,1] w = {3}> { y = Concat<axis=1>(x, w) }"
    )
    assert apply(quantize(fixed, "w"), UnsignConcat())[1].rewrites == []
