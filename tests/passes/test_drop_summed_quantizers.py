"""The quantizer that a fused Conv + Add does not run, and those it does."""

from __future__ import annotations

import numpy as np

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.graph import Model
from passes.drop_summed_quantizers import DropSummedQuantizers
from tests.models.build import apply, bit_equal, parse, quantize, reasons, run

X = np.random.default_rng(0).normal(size=(1, 1, 4, 4)).astype(np.float32)


def net(body: str, *names: str, outputs: str = "float[1,1,4,4] y") -> Model:
    model = parse(
        f"""g (float[1,1,4,4] x) => ({outputs})
        <float[1,1,1,1] w = {{0.7}}, float[1,1,1,1] v = {{-1.3}}, float[1] b = {{0.25}}>
        {{ a = Conv<kernel_shape=[1,1]>(x, w) c = Conv<kernel_shape=[1,1]>(x, v) {body} }}"""
    )
    for name in names:
        quantize(model, name)
    return model


def quantized(model: Model) -> list[str]:
    return [node.inputs[0].name for node in model.nodes(FAKE_QUANTIZE)]


def test_the_conv_branch_of_a_sum_is_not_rounded() -> None:
    made, trace = apply(net("y = Add(x, a)", "x", "a"), DropSummedQuantizers())
    assert quantized(made) == ["x"]
    assert trace.rewrites == ["'a': goes to (Add producing 'y') unrounded"]
    assert bit_equal(run(made, X), run(net("y = Add(x, a)", "x"), X))


def test_of_two_the_first_goes() -> None:
    model = net("y = Add(c, a)", "a", "c")
    made, trace = apply(model, DropSummedQuantizers())
    assert quantized(made) == ["a"]
    assert len(trace.rewrites) == 1
    again, trace = apply(made, DropSummedQuantizers())
    assert quantized(again) == ["a"]
    assert "another Conv" in reasons(trace)


def test_one_without_a_quantizer_is_that_one() -> None:
    made, trace = apply(net("y = Add(c, a)", "c"), DropSummedQuantizers())
    assert quantized(made) == ["c"]
    assert "another Conv" in reasons(trace)


def test_what_others_read_stays() -> None:
    read = net("s = Add(x, a) r = Relu(a) y = Add(s, r)", "a")
    assert quantized(apply(read, DropSummedQuantizers())[0]) == ["a"]
    both = "float[1,1,4,4] y, float[1,1,4,4] a"
    leaves = net("y = Add(x, a)", "a", outputs=both)
    assert len(apply(leaves, DropSummedQuantizers())[0].nodes(FAKE_QUANTIZE)) == 1


def test_other_branches_and_biases_stay() -> None:
    for model in (
        net("r = Relu(a) y = Add(x, r)", "r"),
        net("y = Add(a, b)", "a"),
        net("y = Mul(x, a)", "a"),
    ):
        made, trace = apply(model, DropSummedQuantizers())
        assert len(made.nodes(FAKE_QUANTIZE)) == 1
        assert trace.rewrites == []


def test_it_is_lossy_and_says_so() -> None:
    assert DropSummedQuantizers.lossy
    assert not DropSummedQuantizers.exact
