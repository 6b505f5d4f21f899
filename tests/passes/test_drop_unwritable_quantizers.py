"""Quantizers at inputs that NNIE's file has no number for."""

from __future__ import annotations

import numpy as np

from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG
from onnxq.graph import Model
from passes.drop_unwritable_quantizers import DropUnwritableQuantizers
from tests.models.build import apply, bit_equal, log_quantize, parse, run

X = np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32)


def net(body: str, *names: str, outputs: str = "float[1,2,?,?] y") -> Model:
    model = parse(
        f"""g (float[1,2,4,4] x) => ({outputs})
        <float[2,2,1,1] w = {{1, -0.3, 0.7, 0.1}}, float[2,1,1,1] d = {{0.4, 0.9}}> {{ {body} }}"""
    )
    for name in names:
        log_quantize(model, name, 1.3)
    return model


def rounded(model: Model) -> list[str]:
    return [node.inputs[0].name for node in model.nodes(FAKE_QUANTIZE_LOG)]


def test_only_the_readers_without_a_number_lose_it() -> None:
    body = "c = Conv(x, w) p = GlobalAveragePool(x) y = Add(c, p)"
    made, trace = apply(net(body, "x"), DropUnwritableQuantizers())
    assert rounded(made) == ["x"]
    assert trace.rewrites == [
        "'x': goes to (GlobalAveragePool producing 'p') unrounded",
    ]
    want = net(body)
    log_quantize(want, "x", 1.3, uses=[("c", 0)])
    assert bit_equal(run(made, X), run(want, X))


def test_the_input_of_a_grouped_convolution_goes_and_its_weight_stays() -> None:
    made, _ = apply(net("y = Conv<group=2>(x, d)", "x", "d"), DropUnwritableQuantizers())
    assert rounded(made) == ["d"]


def test_what_leaves_the_network_is_not_rounded() -> None:
    outputs = "float[1,2,?,?] y, float[1,2,?,?] c"
    body = "c = Conv(x, w) y = MaxPool<kernel_shape=[2,2]>(c)"
    made, trace = apply(net(body, "c", outputs=outputs), DropUnwritableQuantizers())
    assert trace.rewrites == ["'c.raw': is a network output, unrounded"]
    assert [t.name for t in made.graph.outputs] == ["y", "c"]
    y, c = run(made, X)
    assert bit_equal([c], run(net(body, outputs=outputs), X)[1:])
    assert bit_equal([y], run(net(body, "c"), X))


def test_told_inputs_keep_theirs() -> None:
    model = net("c = Conv(x, w) y = Add(c, x)", "x", "w", "c")
    made, trace = apply(model, DropUnwritableQuantizers())
    assert trace.rewrites == []
    assert sorted(rounded(made)) == ["c", "w", "x"]


def test_it_is_lossy_and_says_so() -> None:
    assert DropUnwritableQuantizers.lossy
    assert not DropUnwritableQuantizers.exact


def test_a_number_that_could_be_for_either_input_goes() -> None:
    body = "c = Conv(x, w) a = Abs(x) y = Add(c, a)"
    made, trace = apply(net(body, "c"), DropUnwritableQuantizers())
    assert rounded(made) == []
    assert trace.rewrites == ["'c': goes to (Add producing 'y') unrounded"]


def test_a_number_that_another_layer_explains_stays() -> None:
    body = (
        "c = Conv(x, w) m = MaxPool<kernel_shape=[1,1]>(c) a = Abs(x) s = Add(c, a) y = Sub(s, m)"
    )
    made, trace = apply(net(body, "c"), DropUnwritableQuantizers())
    assert rounded(made) == ["c"]
    assert trace.rewrites == []
