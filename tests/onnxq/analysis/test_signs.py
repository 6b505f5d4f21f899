from __future__ import annotations

import numpy as np
import pytest

from onnxq.analysis.signs import Signs
from onnxq.graph import Model
from tests.models.build import parse, quantize, run

X = np.random.default_rng(0).normal(0, 3, (1, 4, 4, 4)).astype(np.float32)
PADS = "p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>()"
SIZES = "s = Constant<value_floats = [1., 1., 2., 2.]>()"
NEVER = {
    "functions": "a = Softplus(x) b = Exp(x) c = Mul(a, b) d = Abs(x) y = Add(c, d)",
    "Clip from 0": "y = Clip(x, zero)",
    "moves": f"{PADS} r = Relu(x) a = Pad(r, p) b = Transpose(a) y = DepthToSpace<blocksize=2>(r)",
    "pads with zeros": f"{PADS} r = Relu(x) y = Pad(r, p)",
    "a constant": "r = Relu(x) y = Mul(r, two)",
    "Max": "r = Relu(x) y = Max(r, two)",
    "linear": f'{SIZES} r = Relu(x) y = Resize <mode = "linear"> (r, , s)',
    "mean": "r = Relu(x) y = ReduceMean(r)",
}
SOMETIMES = {
    "Clip from -1": "y = Clip(x, minus)",
    "Clip up to 2": "y = Clip(x, , two)",
    "pads with -1": f"{PADS} r = Relu(x) y = Pad(r, p, minus)",
    "a constant": "r = Relu(x) y = Mul(r, minus)",
    "cubic": f'{SIZES} r = Relu(x) y = Resize <mode = "cubic"> (r, , s)',
    "one of two": "r = Relu(x) y = Add(r, x)",
    "Sub": "r = Relu(x) y = Sub(r, two)",
}


def model_of(body: str) -> Model:
    constants = "<float zero = {0}, float minus = {-1}, float two = {2}>"
    return parse(f"g (float[1,4,4,4] x) => (float y) {constants} {{ {body} }}", opset=17)


@pytest.mark.parametrize("body", NEVER.values(), ids=NEVER)
def test_never_negative(body: str) -> None:
    model = model_of(body)
    assert Signs().never_negative(model.graph.outputs[0])
    assert run(model, X)[0].min() >= 0


@pytest.mark.parametrize("body", SOMETIMES.values(), ids=SOMETIMES)
def test_sometimes_negative(body: str) -> None:
    model = model_of(body)
    assert not Signs().never_negative(model.graph.outputs[0])
    assert run(model, X)[0].min() < 0


def test_quantizers_keep_signs() -> None:
    model = quantize(model_of("r = Relu(x) y = Identity(r)"), "r", zero_point=3)
    assert Signs().never_negative(model.graph.outputs[0])


def test_long_chains_of_sums_are_followed_once() -> None:
    chain = " ".join(f"a{i + 1} = Add(a{i}, a{i})" for i in range(3000))
    model = model_of(f"a0 = Relu(x) {chain} y = Identity(a3000)")
    assert Signs().never_negative(model.graph.outputs[0])
