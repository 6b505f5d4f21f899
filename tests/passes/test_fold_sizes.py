"""Sizes and arithmetic on them become constants; sizes that values decide stay computed."""

from __future__ import annotations

import numpy as np
import pytest

from passes.fold_sizes import FoldSizes
from passes.infer_shapes import InferShapes
from tests.models.build import apply, ops, parse, reasons, run, tensor

HALF = """
    {x}s = Shape({x}) {x}c = Gather<axis=0>({x}s, one) {x}n = Div({x}c, two)
    {x}v = Unsqueeze({x}n, zero) {y} = Slice({x}, zero, {x}v, axis)
"""
PARAMS = "<int64 one = {1}, int64 two = {2}, int64[1] zero = {0}, int64[1] axis = {1}>"


def halved(times: int, size: str = "1,64") -> str:
    body = "".join(HALF.format(x=f"t{i}", y=f"t{i + 1}") for i in range(times))
    head = f"g (float[{size}] x) => (float[1,n] y) {PARAMS}"
    return f"{head} {{ t0 = Relu(x) {body} y = Neg(t{times}) }}"


def test_a_chain_of_sizes_is_folded_in_one_run() -> None:
    model = parse(halved(4))
    made, trace = apply(model, InferShapes(), FoldSizes())
    assert ops(made) == ["Relu", "Slice", "Slice", "Slice", "Slice", "Neg"]
    assert len(trace.rewrites) == 16
    shaped, _ = apply(made, InferShapes())
    assert tensor(shaped, "t3").shape == [1, 8]
    x = np.random.default_rng(0).normal(size=(1, 64)).astype(np.float32)
    np.testing.assert_array_equal(run(made, x)[0], run(model, x)[0])


def test_a_second_run_changes_nothing() -> None:
    made, _ = apply(parse(halved(2)), FoldSizes())
    assert not apply(made, FoldSizes())[1].rewrites


def test_an_input_without_a_fixed_size() -> None:
    made, trace = apply(parse(halved(1, "N,64")), FoldSizes())
    assert "Shape" in ops(made)
    assert "input 'x' has no fixed size" in reasons(trace)


@pytest.mark.parametrize(
    "body",
    [
        "p = NonZero(x) s = Shape(p) y = Cast<to=1>(s)",
        "i = Cast<to=7>(x) f = Reshape(i, minus) e = Expand(x, f) s = Shape(e) y = Cast<to=1>(s)",
    ],
)
def test_sizes_that_values_decide(body: str) -> None:
    text = f"g (float[2] x) => (float[n] y) <int64[1] minus = {{-1}}> {{ {body} }}"
    made, trace = apply(parse(text), FoldSizes())
    assert "Shape" in ops(made)
    assert "may depend on values" in reasons(trace)


def test_a_size_that_is_an_output_is_still_computed() -> None:
    text = "g (float[2,3] x) => (int64[2] s, float[2,3] y) { s = Shape(x) y = Expand(x, s) }"
    model = parse(text)
    made, _ = apply(model, FoldSizes())
    x = np.ones((2, 3), np.float32)
    for want, got in zip(run(model, x), run(made, x), strict=True):
        np.testing.assert_array_equal(got, want)
