"""Logarithmic quantizers behind what only moves values."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG
from onnxq.graph import Model
from passes.sink_log_quantizers import SinkLogQuantizers
from tests.models.build import apply, bit_equal, log_quantize, parse, quantize, run

X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)


def net(body: str, outputs: str = "float[?] y") -> Model:
    return parse(
        f"g (float[2,3] x) => ({outputs}) <int64[1] n = {{6}}, float[1] c = {{1}}> {{ {body} }}"
    )


def rounded(model: Model) -> list[str]:
    return [node.inputs[0].name for node in model.nodes(FAKE_QUANTIZE_LOG)]


@pytest.mark.parametrize("op", ["Flatten(x)", "Relu(x)", "Reshape(x, n)"])
def test_moved_behind(op: str) -> None:
    model = log_quantize(net(f"m = {op} y = Add(m, c)"), "x", 1.3)
    made, trace = apply(model, SinkLogQuantizers())
    assert rounded(made) == ["m"]
    assert len(trace.rewrites) == 1
    assert bit_equal(run(made, X), run(model, X))


def test_along_a_chain_and_past_other_readers() -> None:
    model = log_quantize(net("f = Flatten(x) r = Relu(f) s = Add(x, x) y = Add(r, s)"), "x", 1.3)
    made, trace = apply(model, SinkLogQuantizers())
    assert sorted(rounded(made)) == ["r", "x"]
    assert len(trace.rewrites) == 2
    assert bit_equal(run(made, X), run(model, X))


def test_out_of_the_network() -> None:
    model = log_quantize(net("y = Relu(x)"), "x", 1.3)
    made, _ = apply(model, SinkLogQuantizers())
    assert [node.outputs[0].name for node in made.nodes(FAKE_QUANTIZE_LOG)] == ["y"]
    assert bit_equal(run(made, X), run(model, X))


def test_one_that_is_there_is_enough() -> None:
    model = log_quantize(log_quantize(net("f = Flatten(x) y = Add(f, c)"), "x", 1.3), "f", 1.3)
    made, _ = apply(model, SinkLogQuantizers())
    assert rounded(made) == ["f"]
    assert bit_equal(run(made, X), run(model, X))


def test_another_behind_it_rounds_as_well() -> None:
    model = log_quantize(log_quantize(net("f = Flatten(x) y = Add(f, c)"), "x", 1.3), "f", 0.4)
    made, _ = apply(model, SinkLogQuantizers())
    assert len(rounded(made)) == 2
    assert bit_equal(run(made, X), run(model, X))


def test_other_operators_and_grids_stay() -> None:
    for model in (
        log_quantize(net("m = Sigmoid(x) y = Add(m, c)"), "x", 1.3),
        quantize(net("m = Relu(x) y = Add(m, c)"), "x"),
        log_quantize(net("m = Relu(c) y = Add(x, m)"), "c", 1.3),
    ):
        _, trace = apply(model, SinkLogQuantizers())
        assert trace.rewrites == []
