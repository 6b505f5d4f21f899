from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model
from passes.turn_weights import TurnWeights
from tests.models.build import apply, bit_equal, parse, run, tensor, weight

X = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)


def linear(
    node: str = "y = MatMul(x, t)", perm: str = "<perm = [1, 0]>", **params: object
) -> Model:
    """A weight of shape (5, 4), quantized and transposed."""
    model = parse(
        f"""g (float[2,3,4] x) => (float[2,3,5] y) <float[5,4] w = {{{", ".join(["0"] * 20)}}}>
        {{ t = Transpose{perm}(w)  {node} }}"""
    )
    tensor(model, "w").values = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    scales = np.float32(0.02) * np.arange(1, 6, dtype=np.float32)
    given = {"scale": scales, "zero_point": np.zeros(5, int), "axis": 0}
    return weight(model, "w", **(params or given))


@pytest.mark.parametrize("perm", ["", "<perm = [1, 0]>"])
def test_scales_follow_their_axis(perm: str) -> None:
    model = linear(perm=perm)
    made, trace = apply(model, TurnWeights())
    assert [node.op for node in made.nodes()] == ["FakeQuantize", "MatMul"]
    (quantizer,) = made.nodes(FAKE_QUANTIZE)
    assert params_of(quantizer).axis == 1
    assert quantizer.inputs[0].shape == (4, 5)
    assert bit_equal(run(made, X), run(model, X))
    assert len(trace.rewrites) == 1
    assert apply(made, TurnWeights())[1].rewrites == []


def test_one_scale_has_no_axis() -> None:
    model = linear(scale=np.float32(0.02), zero_point=0)
    made, _ = apply(model, TurnWeights())
    assert [node.op for node in made.nodes()] == ["FakeQuantize", "MatMul"]
    assert bit_equal(run(made, X), run(model, X))


def test_what_no_layer_reads_as_its_weight_stays() -> None:
    model = linear("s = ReduceSum(t)  z = MatMul(x, t)  y = Add(z, s)")
    made, _ = apply(model, TurnWeights())
    assert any(node.op == "Transpose" for node in made.nodes())
