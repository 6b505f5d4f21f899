"""Biases on the grid of their rows, shared ones included."""

from __future__ import annotations

import numpy as np

from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.quant.qparams import Role
from passes.quantize_bias import QuantizeBias
from passes.round_bias import RoundBias
from passes.to_qdq import ToQdq
from tests.models.build import apply, bit_equal, parse, quantize, reasons, run, weight

X = np.random.default_rng(0).normal(size=(1, 1, 2, 2)).astype(np.float32)


def net(bias: float, *, both: bool = False) -> Model:
    second = "c = Conv<kernel_shape=[1,1]>(x, v, b) y = Add(a, c)" if both else "y = Relu(a)"
    model = parse(
        f"""g (float[1,1,2,2] x) => (float[1,1,2,2] y)
        <float[1,1,1,1] w = {{1}}, float[1,1,1,1] v = {{2}}, float[1] b = {{{bias}}}>
        {{ a = Conv<kernel_shape=[1,1]>(x, w, b) {second} }}"""
    )
    quantize(model, "x", scale=np.float32(0.5))
    weight(model, "w", scale=np.float32(0.25))
    return weight(model, "v", scale=np.float32(0.0625)) if both else model


def test_the_graph_computes_what_int32_codes_do() -> None:
    rows, _ = apply(net(0.3), QuantizeBias())
    made, trace = apply(rows, RoundBias())
    assert trace.rewrites == ["'b': off by up to 17 % of its largest value"]
    assert array(made.nodes("Conv")[0].inputs[2]) == 0.25  # two steps of 0.125
    assert [row.tensor for row in made.qparams.of(Role.BIAS)] == ["b"]
    assert bit_equal(run(made, X), run(apply(rows, ToQdq())[0], X))
    assert bit_equal(run(apply(made, ToQdq())[0], X), run(made, X))
    assert apply(made, RoundBias())[1].rewrites == []


def test_what_lies_on_its_grid_is_left() -> None:
    _, trace = apply(apply(net(0.375), QuantizeBias())[0], RoundBias())
    assert trace.rewrites == []
    assert "is on its grid" in reasons(trace)


def test_a_shared_bias_is_rounded_for_each_of_its_layers() -> None:
    rows, _ = apply(net(0.3, both=True), QuantizeBias())
    made, trace = apply(rows, RoundBias())
    assert len(trace.rewrites) == 2
    found = [float(array(conv.inputs[2]).item()) for conv in made.nodes("Conv")]
    assert found == [0.25, 0.3125]  # steps of 0.125 and 0.03125
    names = {row.tensor for row in made.qparams.of(Role.BIAS)}
    assert names == {conv.inputs[2].name for conv in made.nodes("Conv")}
    assert bit_equal(run(apply(made, ToQdq())[0], X), run(made, X))


def test_biases_without_a_row_stay() -> None:
    model = net(0.3)
    made, trace = apply(model, RoundBias())
    assert (trace.rewrites, trace.skips) == ([], [])
    assert bit_equal(run(made, X), run(model, X))
