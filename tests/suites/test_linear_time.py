"""Every pass does work in proportion to the size of the model, no more."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from onnxq.pipeline import Pipeline
from tests.checks.work import assert_linear
from tests.models.prepared import PASSES, Forms

BLOCK = """
    q{i} = QuantizeLinear(x{i}, s, z)
    d{i} = DequantizeLinear(q{i}, s, z)
    v{i} = QuantizeLinear(w{i}, s, z)
    u{i} = DequantizeLinear(v{i}, s, z)
    c{i} = Conv<kernel_shape=[1,1]>(d{i}, u{i}, b)
    n{i} = BatchNormalization(c{i}, g, b, b, g)
    r{i} = Relu(n{i})
    l{i} = Clip(r{i}, lo, hi)
    k{i} = Constant<value_float = 1.5>()
    m{i} = Mul(k{i}, t)
    a{i} = Mul(l{i}, m{i})
    i{i} = Identity(a{i})
    x{j} = MaxPool<kernel_shape=[1,1]>(i{i})
"""


@functools.cache
def chain(blocks: int) -> Forms:
    """Blocks that hold something for every pass; scales, zero points and biases are shared."""
    body = "".join(BLOCK.format(i=i, j=i + 1) for i in range(blocks))
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,2,4,4] x0) => (float[1,2,4,4] x{blocks})
    <float s = {{0.1}}, uint8 z = {{3}}, float[2] b = {{1, 2}}, float[2] g = {{1, 2}},
     float t = {{2}}, float lo = {{0}}, float hi = {{6}}> {{{body}}}"""
    model = onnx.parser.parse_model(text)
    for i in range(blocks):
        weight = np.full((2, 2, 1, 1), i % 7, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, f"w{i}"))
    return Forms(model)


@pytest.mark.parametrize("name", sorted(PASSES))
def test_work_of_a_pass_is_linear(name: str) -> None:
    step = PASSES[name]()

    def prepare(blocks: int) -> Callable[[], object]:
        model = chain(blocks).prepared(step).clone()
        return lambda: Pipeline(step).run(model, in_place=True)

    assert_linear(prepare, 12)
